"""What can be wrong with a model's folder: each names the file, the field, and what was found."""

from pathlib import Path


class EngineError(Exception):
    """Everything this package raises on purpose; its text is for people."""


class BadModel(EngineError):
    """A folder that holds no model this engine can run."""

    def __init__(self, file: Path | str, field: str, problem: str) -> None:
        super().__init__(f"{file}: {field}: {problem}" if field else f"{file}: {problem}")
        self.file, self.field, self.problem = str(file), field, problem


class RequestError(EngineError):
    """A request that is answered with an error; `field` is the parameter at fault, if one is."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field, self.problem = field, problem


class BadRequest(RequestError):
    """It can never be served as it is."""


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
