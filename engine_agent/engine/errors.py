"""What can go wrong at an engine. What is wrong with a model's files or with a prompt, `prompts` finds as well."""

from engine_agent.prompts.errors import BadModel as BadModel
from engine_agent.prompts.errors import BadRequest as BadRequest
from engine_agent.prompts.errors import EngineError as EngineError
from engine_agent.prompts.errors import RequestError as RequestError


class Overlong(BadRequest):
    """More tokens than the model's context, the namespace's limit or the pool will ever hold."""


class Overloaded(RequestError):
    """Not now: as many wait as may, or the engine is draining. Nothing was counted."""


class PagesFailed(RequestError):
    """What lies in the pages can no longer be trusted: this engine must not serve on."""


class DeadlinePassed(RequestError):
    """It waited, or ran, longer than it was given."""


class UnknownTenant(RequestError):
    """A namespace that this engine's snapshot does not have."""


class EngineFailed(RequestError):
    """Our fault. The request is lost, others go on."""


class RejectedSnapshot(EngineError):
    """A snapshot this engine cannot obey. What it held before still holds."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"{entry}: {problem}")
        self.entry, self.problem = entry, problem


class BadSetting(EngineError):
    """A size or bound that no engine can be started with."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem
