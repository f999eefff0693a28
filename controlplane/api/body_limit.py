"""Refuses requests before Django reads them: bodies too large for their path, and heads that make Django fail.

Django writes a body of any size to disk before any code asks for it, so the limit must come first.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from django.utils.http import parse_header_parameters

from controlplane.api.problem_json import CONTENT_TYPE, problem, problem_bytes
from controlplane.common.metrics import http_requests
from controlplane.web.middleware import KNOWN_METHODS
from controlplane.web.probes import Application, Receive, Scope, Send

MEBIBYTE = 1024 * 1024
ProblemType = Literal["malformed", "too-large", "media-type"]  # keys of problems.MEANINGS, which the docs explain
_LENGTH = re.compile(rb"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    type: ProblemType
    title: str
    field: str
    message: str


def body_limit_of(path: str) -> int:
    """Return the limit in bytes. Only configuration documents, which describe whole organisations, are large."""
    return (8 if path.startswith("/api/v1/config/") else 1) * MEBIBYTE


class BodyLimit:
    def __init__(self, inner: Application, limit_of: Callable[[str], int] = body_limit_of) -> None:
        self._inner = inner
        self._limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._limit_of(scope["path"])
        refusal = head_refusal(scope, limit)
        if refusal is not None:
            await _send(send, scope, refusal)
        else:
            await self._counted(scope, receive, send, limit)

    async def _counted(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        """Count a body of unknown size. Beyond the limit, Django sees a disconnect and the caller gets a 413."""
        received_bytes, has_begun = 0, False

        async def counted_receive() -> object:
            nonlocal received_bytes
            if received_bytes > limit:
                return {"type": "http.disconnect"}
            message = await receive()
            received_bytes += len(message.get("body", b""))
            return message if received_bytes <= limit else {"type": "http.disconnect"}

        async def noticed_send(message: object) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        await self._inner(scope, counted_receive, noticed_send)
        if received_bytes > limit and not has_begun:
            await _send(send, scope, too_large(limit))


def too_large(limit: int) -> Refusal:
    message = f"is larger than the {limit} bytes taken here"
    return Refusal(413, "too-large", "The body is too large", "body", message)


def head_refusal(scope: Scope, limit: int) -> Refusal | None:
    """Return why the request's head is refused, or None."""
    lengths = _values(scope, b"content-length")
    if len(lengths) > 1 or any(not _LENGTH.fullmatch(length) for length in lengths):
        return _bad("Content-Length", "must be one decimal number of bytes")
    if any(int(length) > limit for length in lengths):
        return too_large(limit)
    if "\0" in scope["path"]:
        return _bad("path", "contains a NUL character")
    if not _is_utf8(scope.get("query_string", b"")):
        return _bad("query", "is not UTF-8")
    return _media_type_refusal(_values(scope, b"content-type"))


def _media_type_refusal(values: set[bytes]) -> Refusal | None:
    """Refuse charsets other than UTF-8: Django would decode forms with the named one, and fail if it is unknown."""
    try:
        charsets = {parse_header_parameters(value.decode("latin-1"))[1].get("charset", "utf-8") for value in values}
    except ValueError:
        return _bad("Content-Type", "is malformed")
    if len(values) > 1:
        return _bad("Content-Type", "is given more than once")
    if any(charset.lower() not in {"utf-8", "utf8"} for charset in charsets):
        title = "The body is of a kind not read here"
        return Refusal(415, "media-type", title, "Content-Type", "must have the charset utf-8 or none")
    return None


def _bad(field: str, message: str) -> Refusal:
    return Refusal(400, "malformed", "The request is malformed", field, message)


def _values(scope: Scope, name: bytes) -> set[bytes]:
    return {value for key, value in scope.get("headers", ()) if key == name}


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


async def _send(send: Send, scope: Scope, refusal: Refusal) -> None:
    body, content_type = _body(scope["path"], refusal)
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    method = scope["method"] if scope["method"] in KNOWN_METHODS else "OTHER"
    http_requests.labels(method, "refused", str(refusal.status)).inc()
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def _body(path: str, refusal: Refusal) -> tuple[bytes, str]:
    detail = f"{refusal.field} {refusal.message}"
    if not path.startswith("/api/"):
        return f"{refusal.title}: {detail}\n".encode(), "text/plain; charset=utf-8"
    errors = [(refusal.field, refusal.message)]
    document = problem(refusal.status, type=refusal.type, title=refusal.title, detail=detail, errors=errors)
    return problem_bytes(document), CONTENT_TYPE
