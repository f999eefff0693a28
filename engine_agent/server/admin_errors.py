"""The statuses of errors in the admin API, as `{"error": {"code", "message", …}}`."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine_agent.cache.errors import UnknownPin
from engine_agent.contracts.protocol import HashMismatch, MalformedMessage
from engine_agent.engine.errors import (
    BadRequest,
    DeadlinePassed,
    EngineFailed,
    Overloaded,
    RejectedSnapshot,
    RequestError,
)
from engine_agent.http.errors import ApiError
from engine_agent.journal.journal import BadCut, UnknownBoot
from engine_agent.prompts.errors import TemplateUnavailable
from engine_agent.server.receipts import BadReceiptNumber


class AdminError(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def _answer(status: int, code: str, message: str, **details: Any) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, **details}}, status)


def _own(request: Request, error: AdminError) -> Response:
    return _answer(error.status, error.code, str(error))


def _mismatch(request: Request, error: HashMismatch) -> Response:
    return _answer(409, "hash_mismatch", str(error), expected=error.expected, found=error.found)


def _malformed(request: Request, error: MalformedMessage) -> Response:
    return _answer(400, "malformed", str(error), field=error.field)


def _rejected(request: Request, error: RejectedSnapshot) -> Response:
    return _answer(422, "rejected", str(error), entry=error.entry, problem=error.problem)


def _strict(request: Request, error: ApiError) -> Response:
    return _answer(error.status, error.code or "invalid", error.message, field=error.param)


def _asked(request: Request, error: RequestError) -> Response:
    status, code = next(answer for kind, answer in _OF_REQUESTS.items() if isinstance(error, kind))
    return _answer(status, code, str(error), field=error.field or None)


def _unknown(request: Request, error: Exception) -> Response:
    return _answer(404, "unknown", str(error))


def _bad_cut(request: Request, error: BadCut) -> Response:
    return _answer(400, "bad_cut", str(error))


def _bad_receipt(request: Request, error: BadReceiptNumber) -> Response:
    return _answer(400, "bad_receipt", str(error))


def _http(request: Request, error: HTTPException) -> Response:
    code = {404: "unknown_path", 405: "unknown_method"}.get(error.status_code, "invalid")
    answer = _answer(error.status_code, code, f"{request.method} {request.url.path[:200]}: {error.detail}")
    answer.headers.update(error.headers or {})
    return answer


def _failed(request: Request, error: Exception) -> Response:
    return _answer(500, "internal_error", "The engine's admin face failed at this; its log says how.")


_OF_REQUESTS: Mapping[type[RequestError], tuple[int, str]] = {
    BadRequest: (400, "invalid_value"),
    Overloaded: (503, "overloaded"),
    TemplateUnavailable: (503, "overloaded"),
    DeadlinePassed: (503, "too_slow"),
    EngineFailed: (503, "engine_failed"),
    RequestError: (400, "invalid"),
}
exception_handlers: Mapping[Any, Callable[..., Response]] = {
    AdminError: _own,
    HashMismatch: _mismatch,
    MalformedMessage: _malformed,
    RejectedSnapshot: _rejected,
    ApiError: _strict,
    RequestError: _asked,
    UnknownBoot: _unknown,
    UnknownPin: _unknown,
    BadCut: _bad_cut,
    BadReceiptNumber: _bad_receipt,
    HTTPException: _http,
    Exception: _failed,
}
