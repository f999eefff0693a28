"""Problem documents: application/problem+json (RFC 9457). problems.py maps errors to them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.http import HttpResponse

from controlplane.api.errors import RefusedRequest, shown
from controlplane.common.request_id import request_id_current

CONTENT_TYPE = "application/problem+json"
MOST_ERRORS = 100
_LONGEST_TEXT = 500

FieldErrors = Iterable[tuple[str, str]]


def problem(status: int, *, type: str, title: str, detail: str, errors: FieldErrors = ()) -> dict[str, Any]:
    """Return the document. `type`: the word for its section in the docs; `errors`: pairs of field and message."""
    listed = [{"field": shown(field), "message": _clipped(message)} for field, message in errors]
    return {
        "type": f"/api/v1/docs#problem-{type}",
        "title": title,
        "status": status,
        "detail": _clipped(detail),
        "errors": listed[:MOST_ERRORS],
        "request_id": request_id_current(),
    }


def problem_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the document in ASCII, so that no text from a caller can make the encoding fail."""
    return json.dumps(document).encode("ascii")


def problem_response(
    status: int,
    *,
    type: str,
    title: str,
    detail: str,
    errors: FieldErrors = (),
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    document = problem(status, type=type, title=title, detail=detail, errors=errors)
    response = HttpResponse(problem_bytes(document), status=status, content_type=CONTENT_TYPE)
    response.headers["Cache-Control"] = "no-store"
    for name, value in (headers or {}).items():
        response.headers[name] = value
    return response


def refusal(status: int, error: RefusedRequest, *, type: str, title: str) -> HttpResponse:
    """Return a problem with the one faulty field, in its text and as data."""
    pair = (error.field, error.message)
    return problem_response(status, type=type, title=title, detail=f"{error.field} {error.message}", errors=[pair])


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
