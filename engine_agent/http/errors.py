"""Errors for clients, in OpenAI's format."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine_agent.contracts.words import listed

RETRY_SECONDS = 1
MOST_NAMED, LONGEST_NAME = 10, 100
INVALID, SERVER = "invalid_request_error", "server_error"


class ApiError(Exception):
    """An error for a client. `param` names the parameter at fault, `code` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        kind = INVALID if self.status < 500 else SERVER
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def invalid(param: str | None, problem: str, code: str | None = "invalid_value") -> ApiError:
    return ApiError(400, f"{param}: {problem}" if param else problem, param=param, code=code)


def unavailable(message: str, code: str, *, retry_seconds: int = RETRY_SECONDS) -> ApiError:
    """Return an error after which a client may try again, here or elsewhere."""
    return ApiError(503, message, code=code, headers={"retry-after": str(retry_seconds)})


def model_not_found(name: str, served: Iterable[str]) -> ApiError:
    """Return the error for an unknown model. `served` lists the models that the caller may use instead."""
    text = f"There is no model {name[:200]!r} here. {_named(sorted(served))}"
    return ApiError(404, text, param="model", code="model_not_found")


def _named(models: Sequence[str]) -> str:
    if not models:
        return "No model is served here now."
    return f"Served here: {listed([name[:LONGEST_NAME] for name in models], MOST_NAMED)}."


def failed() -> ApiError:
    """Return an error without details: they are in the log, and not for clients."""
    return ApiError(500, "The server failed at this request.", code="internal_error")
