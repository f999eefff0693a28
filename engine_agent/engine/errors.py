"""Errors of an engine. Errors in a model's files or in a prompt are shared with `prompts`."""

from engine_agent.prompts.errors import BadModel as BadModel
from engine_agent.prompts.errors import BadRequest as BadRequest
from engine_agent.prompts.errors import EngineError as EngineError
from engine_agent.prompts.errors import RequestError as RequestError


class Overlong(BadRequest):
    """More tokens than the model's context, the namespace's limit or the pool can ever take."""


class Overloaded(RequestError):
    """Not now: the maximum number of requests waits, or the engine is draining. Nothing was counted."""


class PagesFailed(RequestError):
    """The pages' content is unreliable: this engine must stop serving."""


class DeadlinePassed(RequestError):
    """The request waited or ran past its deadline."""


class UnknownTenant(RequestError):
    """A namespace that is not in this engine's snapshot."""


class EngineFailed(RequestError):
    """An internal error. This request is lost, others continue."""


class RejectedSnapshot(EngineError):
    """A snapshot that this engine cannot apply. The previous one stays in force."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"{entry}: {problem}")
        self.entry, self.problem = entry, problem


class BadSetting(EngineError):
    """A size or bound with which no engine can start."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem
