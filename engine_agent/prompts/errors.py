"""What can be wrong with a model's files, and with what is asked of it. The engine's own errors go on from here."""

from pathlib import Path


class EngineError(Exception):
    """Everything that engines, and what they share with gateways, raise on purpose; its text is for people."""


class BadModel(EngineError):
    """A folder that holds no model this engine can run."""

    def __init__(self, file: Path | str, field: str, problem: str) -> None:
        super().__init__(f"{file}: {field}: {problem}" if field else f"{file}: {problem}")
        self.file, self.field, self.problem = str(file), field, problem


class BadBundle(EngineError):
    """Bytes that are no bundle."""


class RequestError(EngineError):
    """A request that is answered with an error; `field` is the parameter at fault, if one is."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field, self.problem = field, problem


class BadRequest(RequestError):
    """It can never be served as it is."""


class TemplateExhausted(BadRequest):
    """The chat template takes more time or memory for it than it may."""


class TemplateUnavailable(RequestError):
    """No process could render the chat. Another attempt may succeed."""
