"""What clients are told by the gateway itself, in OpenAI's shape."""

from collections.abc import Sequence

from engine_agent.gateway.route import RouteError, UnprovenFormat, UnservedFormat
from engine_agent.http.errors import ApiError, model_not_found, unavailable


def route_refusal(problem: RouteError, model: str) -> ApiError:
    match problem:
        case UnprovenFormat(kv_dtype=kv_dtype, why=why, alternatives=alternatives):
            text = (
                f"kv_cache_dtype: {kv_dtype!a} may not be used on {model}: {why.rstrip('.')}. {_may_use(alternatives)}"
            )
            return ApiError(400, text, param="kv_cache_dtype", code="kv_dtype_unproven")
        case UnservedFormat(kv_dtype=kv_dtype, alternatives=alternatives):
            text = f"kv_cache_dtype: no engine of {model} can do {kv_dtype[:40]!a}. {_may_use(alternatives)}"
            return ApiError(400, text, param="kv_cache_dtype", code="kv_dtype_unserved")
    return model_not_found(model)


def _may_use(alternatives: Sequence[str]) -> str:
    return f"This namespace may use {', '.join(alternatives)}." if alternatives else "There is no other it may use."


def no_engine(model: str, *, tried: int, is_lost: bool) -> ApiError:
    if is_lost:
        return unavailable("The engine was lost before it answered. Nothing was counted.", "engine_lost")
    if not tried:
        return unavailable(f"No engine of {model} takes requests now: all are being drained or stopped.", "no_engine")
    engines = f"{tried} engine{'s' * (tried > 1)}"
    return unavailable(f"No engine of {model} can take the request now: {engines} tried.", "no_engine")


def broken_off() -> ApiError:
    return ApiError(502, "The engine was lost while it answered: this answer is not complete.", code="engine_lost")


def stopping() -> ApiError:
    return unavailable("This gateway is being stopped.", "overloaded")


def draining() -> ApiError:
    return unavailable("This gateway takes no more requests: it finishes what runs.", "draining")


def revoked() -> ApiError:
    return unavailable("This gateway was taken out of its fleet, and serves nobody any more.", "revoked")


def not_ready() -> ApiError:
    return unavailable("This gateway has not heard yet whom it serves.", "no_snapshot")
