"""The engine's errors as responses to clients. They become HTTP only here."""

from collections.abc import Mapping

from engine_agent.engine.errors import (
    BadRequest,
    DeadlinePassed,
    EngineFailed,
    Overloaded,
    Overlong,
    RequestError,
    UnknownTenant,
)
from engine_agent.http.errors import ApiError, failed, invalid, unavailable
from engine_agent.prompts.errors import TemplateExhausted, TemplateUnavailable


def api_error(error: RequestError, names: Mapping[str, str]) -> ApiError:
    """Return the client's error, with the field's name in the client's API."""
    param = names.get(error.field, error.field) or None
    match error:
        case Overlong():
            return invalid(param, error.problem, "context_length_exceeded")
        case TemplateExhausted():
            return invalid(param, error.problem, "template_budget_exceeded")
        case BadRequest():
            return invalid(param, error.problem)
        case Overloaded():
            return unavailable(f"The engine takes no more requests now: {error.problem}.", "overloaded")
        case TemplateUnavailable():
            return unavailable(f"The engine cannot render a chat now: {error.problem}.", "overloaded")
        case DeadlinePassed():
            return ApiError(504, "The request took longer than it was given.", code="deadline_exceeded")
        case UnknownTenant():
            return unavailable("This engine does not know the namespace yet.", "unknown_namespace")
        case EngineFailed():
            return ApiError(500, "The engine failed at this request; others are not affected.", code="engine_failed")
    return failed()
