"""Maps errors to HTTP statuses. The only place where the domain's errors meet HTTP."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import DataError, OperationalError
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from controlplane.api import errors as refused
from controlplane.api.callers import RateLimited, TokenMissing
from controlplane.api.problem_json import problem_response, refusal
from kernels.errors import InvalidArgument
from tenants import errors as domain
from tenants.locks import is_busy
from tenants.validation import field_problems

log = logging.getLogger("luminet.api")
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="luminet"'}
Handler = Callable[[HttpRequest, Any], HttpResponse]

# Also for the docs: the meaning of each kind of problem, by the word that its `type` ends with.
MEANINGS = {
    "unauthenticated": (401, "Who are you?", "The token is missing, unknown, revoked or expired."),
    "forbidden": (403, "You may not do this", "The token is known and the thing is yours, but it lacks the right."),
    "not-found": (404, "There is no such thing", "It does not exist, or it is not yours: the answer is the same."),
    "method-not-allowed": (405, "This cannot be done here", "The path exists, the method does not: see Allow."),
    "conflict": (409, "This does not fit beside what exists", "A name is taken, a limit is reached, shares run out."),
    "stale": (412, "Somebody was faster", "If-Match names a revision that is not the current one: read it again."),
    "head-too-large": (431, "The request's head is too large", "64 KiB and 256 headers are the most."),
    "too-slow": (408, "The request came too slowly", "Its head or its body did not come in time: send it again."),
    "overloaded": (503, "There are too many connections", "Close some, or reuse them. Try again after Retry-After."),
    "too-large": (413, "The body is too large", "1 MiB is the most; 8 MiB for configurations."),
    "media-type": (415, "We read JSON only", "Send Content-Type: application/json."),
    "invalid": (422, "Some fields cannot be accepted", "Every field that is wrong is named in errors."),
    "malformed": (400, "The request cannot be read", "JSON, a header, a cursor or a parameter is malformed."),
    "refused": (
        400,
        "This KV format may not carry traffic",
        "It has no passing quality result: errors says which, and what there is.",
    ),
    "precondition-required": (428, "Say what you have seen", "Send If-Match with the ETag you were given."),
    "rate-limited": (429, "Too many requests", "Wait for as long as Retry-After says."),
    "broken": (500, "Something broke on our side", "Try again; if it stays, give the request_id to an operator."),
    "unavailable": (503, "The database does not answer", "Nothing was changed. Try again in a moment."),
    "busy": (503, "Somebody else is changing this right now", "Nothing was changed. Try again after Retry-After."),
}


def _answer(
    kind: str, detail: str, fields: list[tuple[str, str]] | None = None, headers: dict[str, str] | None = None
) -> HttpResponse:
    status, title, _ = MEANINGS[kind]
    return problem_response(status, type=kind, title=title, detail=detail, errors=fields or [], headers=headers)


def _refused(kind: str) -> Handler:
    status, title, _ = MEANINGS[kind]
    return lambda request, error: refusal(status, error, type=kind, title=title)


def _said(kind: str, headers: dict[str, str] | None = None) -> Handler:
    return lambda request, error: _answer(kind, str(error), headers=headers)


def _with_fields(kind: str) -> Handler:
    def handle(request: HttpRequest, error: Any) -> HttpResponse:
        return _answer(kind, str(error), [(problem.field, problem.message) for problem in error.problems])

    return handle


def _token_missing(request: HttpRequest, error: TokenMissing) -> HttpResponse:
    return _answer("unauthenticated", str(error), [(error.field, error.message)], headers=CHALLENGE)


def _stale(request: HttpRequest, error: domain.StaleRevision) -> HttpResponse:
    return _answer("stale", str(error), [("If-Match", str(error))])


def _stale_plan(request: HttpRequest, error: domain.StalePlan) -> HttpResponse:
    return _answer("stale", str(error), [("expected_plan", str(error))])


def _missing_scope(request: HttpRequest, error: domain.MissingScope) -> HttpResponse:
    return _answer("forbidden", str(error), [("scope", f"{error.scope} is needed")])


def _weak_password(request: HttpRequest, error: domain.WeakPassword) -> HttpResponse:
    return _answer("invalid", str(error), [("password", problem) for problem in error.problems])


def _invalid_argument(request: HttpRequest, error: InvalidArgument) -> HttpResponse:
    return _answer("invalid", str(error), [(error.argument, f"{error.value!r} is not {error.wanted}")])


def _key_reused(request: HttpRequest, error: domain.IdempotencyKeyReused | domain.AnswerNotKept) -> HttpResponse:
    return _answer("conflict", str(error), [("Idempotency-Key", str(error))])


def _rate_limited(request: HttpRequest, error: RateLimited) -> HttpResponse:
    return _answer("rate-limited", str(error))  # every answer's headers say how long to wait


def _validation(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """Answer ninja's validation errors. A malformed path names no object, so it gets a 404."""
    field_messages = list(_validation_fields(error))
    if any(detail["loc"][0] == "path" for detail in error.errors):
        return _answer("not-found", "There is no such thing.")
    return _answer("invalid", "; ".join(f"{field}: {message}" for field, message in field_messages), field_messages)


def _validation_fields(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield field and message. Ninja puts the source before the location and, for bodies, our argument's name."""
    for detail in error.errors:
        source, *path = detail["loc"]
        (problem,) = field_problems([{**detail, "loc": path[1:] if source == "body" else path}], root="body")
        yield problem.field, problem.message


def _http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """Answer an error that ninja raised while it read the body; the reason is its cause."""
    cause = error.__cause__
    if isinstance(cause, refused.UnsupportedMediaType):
        return _refused("media-type")(request, cause)
    if isinstance(cause, refused.RefusedRequest):
        return _refused("malformed")(request, cause)
    if isinstance(cause, RequestDataTooBig):
        return _answer("too-large", str(cause))
    return _answer("malformed", str(error))


def _database_away(request: HttpRequest, error: OperationalError) -> HttpResponse:
    if is_busy(error):
        log.warning("others hold what this needs", exc_info=error)
        detail = "Somebody else is changing this right now; try again. Nothing was changed."
        return _answer("busy", detail, headers={"Retry-After": "1"})
    log.error("the database does not answer", exc_info=error)
    return _answer("unavailable", "Nothing was changed. Try again in a moment.", headers={"Retry-After": "5"})


def _cannot_be_kept(request: HttpRequest, error: DataError) -> HttpResponse:
    """Answer a value that our checks accepted, but that is too long or too large for its column."""
    log.error("a value does not fit its column", exc_info=error)
    problem = "holds something too long or too large to be kept"
    return _answer("invalid", f"The request {problem}. Nothing was changed.", [("request", problem)])


def _broken(request: HttpRequest, error: Exception) -> HttpResponse:
    log.error("unexpected error", exc_info=error)
    return _answer("broken", "Nothing was changed. If this stays, give the request_id to an operator.")


HANDLERS: dict[type[Exception], Handler] = {
    TokenMissing: _token_missing,
    RateLimited: _rate_limited,
    refused.UnsupportedMediaType: _refused("media-type"),
    refused.PreconditionRequired: _refused("precondition-required"),
    refused.ForeignTag: _refused("stale"),
    refused.RefusedRequest: _refused("malformed"),
    domain.InvalidToken: _said("unauthenticated", CHALLENGE),
    domain.NotFound: _said("not-found"),
    domain.MissingScope: _missing_scope,
    domain.OutOfBounds: _with_fields("forbidden"),
    domain.NotPermitted: _said("forbidden"),
    domain.StaleRevision: _stale,
    domain.StalePlan: _stale_plan,
    domain.PublishRefused: _with_fields("refused"),
    domain.InvalidFields: _with_fields("invalid"),
    domain.WeakPassword: _weak_password,
    InvalidArgument: _invalid_argument,
    domain.Conflict: _with_fields("conflict"),
    domain.IdempotencyKeyReused: _key_reused,
    domain.AnswerNotKept: _key_reused,
    ValidationError: _validation,
    HttpError: _http_error,
    SuspiciousOperation: _said("malformed"),
    OperationalError: _database_away,
    DataError: _cannot_be_kept,
    Exception: _broken,
}


def problems_register(api: NinjaAPI) -> None:
    for error, handler in HANDLERS.items():
        api.add_exception_handler(error, handler)


def problem_for_status(status: int, fields: list[tuple[str, str]] | None = None) -> HttpResponse:
    """Return the problem for a request that reached no operation: unknown path, wrong method, foreign host."""
    kind = next((kind for kind, meaning in MEANINGS.items() if meaning[0] == status), None)
    if kind is None:
        kind = "malformed" if status < 500 else "broken"
        return problem_response(
            status, type=kind, title=MEANINGS[kind][1], detail=MEANINGS[kind][2], errors=fields or []
        )
    return _answer(kind, MEANINGS[kind][2], fields)
