"""The errors that the gateway itself returns to clients, in OpenAI's format."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine_agent.gateway.quotas.rates import Exceeded, Limit
from engine_agent.gateway.route import RouteError, UnprovenFormat, UnservedFormat
from engine_agent.http.errors import ApiError, model_not_found, unavailable


def route_refusal(problem: RouteError, model: str, served: Callable[[], Iterable[str]]) -> ApiError:
    """Return the error for a routing problem. `served` lists the models that exist, should the model be unknown."""
    match problem:
        case UnprovenFormat(kv_dtype=kv_dtype, why=why, alternatives=alternatives):
            text = (
                f"kv_cache_dtype: {kv_dtype!a} may not be used on {model}: {why.rstrip('.')}. {_may_use(alternatives)}"
            )
            return ApiError(400, text, param="kv_cache_dtype", code="kv_dtype_unproven")
        case UnservedFormat(kv_dtype=kv_dtype, alternatives=alternatives):
            text = f"kv_cache_dtype: no engine of {model} can do {kv_dtype[:40]!a}. {_may_use(alternatives)}"
            return ApiError(400, text, param="kv_cache_dtype", code="kv_dtype_unserved")
    return model_not_found(model, served())


def _may_use(alternatives: Sequence[str]) -> str:
    return f"This namespace may use {', '.join(alternatives)}." if alternatives else "There is no other it may use."


def no_engine(model: str, *, tried: int, is_lost: bool, is_silent: bool = False) -> ApiError:
    if is_lost:
        return unavailable("The engine was lost before it answered. Nothing was counted.", "engine_lost")
    if not tried and is_silent:
        return unavailable(f"No engine of {model} answers now.", "no_engine")
    if not tried:
        return unavailable(f"No engine of {model} takes requests now: all are being drained or stopped.", "no_engine")
    engines = f"{tried} engine{'s' * (tried > 1)}"
    return unavailable(f"No engine of {model} can take the request now: {engines} tried.", "no_engine")


def broken_off() -> ApiError:
    return ApiError(502, "The engine was lost while it answered: this answer is not complete.", code="engine_lost")


def stopping() -> ApiError:
    text = "This gateway was stopped before the answer was complete. Send the request again."
    return unavailable(text, "gateway_stopped")


def draining() -> ApiError:
    problem = unavailable("This gateway takes no more requests: it finishes what runs.", "draining")
    problem.headers = {**problem.headers, "connection": "close"}  # otherwise a pooled connection would come back here
    return problem


def revoked() -> ApiError:
    return unavailable("This gateway was taken out of its fleet, and serves nobody any more.", "revoked")


def not_ready() -> ApiError:
    return unavailable("This gateway has not heard yet whom it serves.", "no_snapshot")


# Limits and room


LIMITED = "rate_limit_exceeded"
_SPELT: dict[Limit, str] = {
    "requests_per_minute": "requests per minute",
    "tokens_per_minute": "tokens per minute",
    "concurrent_requests": "requests at once",
}


class TooMany(ApiError):
    """A 429 error in OpenAI's wording. `of`: what was too many, requests or tokens."""

    def __init__(self, message: str, *, of: str, seconds: float, code: str = LIMITED) -> None:
        super().__init__(429, message, code=code, headers={"retry-after": str(max(1, math.ceil(seconds)))})
        self._of = of

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {**super().body["error"], "type": self._of}}


def limit_reached(organisation: str, problem: Exceeded) -> ApiError:
    unit = "tokens" if problem.limit == "tokens_per_minute" else "requests"
    retry_hint = "as soon as one ends" if problem.limit == "concurrent_requests" else f"in {duration(problem.seconds)}"
    text = (
        f"Rate limit reached for {organisation} on {_SPELT[problem.limit]}: limit {problem.most:,}, "
        f"requested {problem.wanted:,}. Please try again {retry_hint}."
    )
    return TooMany(text, of=unit, seconds=problem.seconds)


def queue_full(waiting: int) -> ApiError:
    text = f"The engines are full, and {waiting:,} requests of this organisation wait already."
    return TooMany(text, of="requests", seconds=1, code="queue_full")


def no_room() -> ApiError:
    return unavailable("The engines are full, and too many requests wait already.", "overloaded")


def in_vain(seconds: float) -> ApiError:
    return unavailable(f"The engines are full: none had room within {seconds:g} s.", "overloaded")


def duration(seconds: float) -> str:
    """Format a duration as OpenAI does: 0s, 120ms, 1.5s, 6m0s. Round up, so that a retry after that time succeeds."""
    if seconds < 1:
        milliseconds = math.ceil(seconds * 1_000 - 1e-6)
        return f"{milliseconds}ms" if 0 < milliseconds < 1_000 else f"{milliseconds // 1_000}s"
    tenths = math.ceil(seconds * 10 - 1e-6)
    if tenths < 600:
        return f"{tenths / 10:g}s"
    whole_seconds = math.ceil(seconds - 1e-6)
    return f"{whole_seconds // 60}m{whole_seconds % 60}s"
