"""Errors in a model's files and in requests. The engine's own errors derive from these."""

from pathlib import Path


class EngineError(Exception):
    """The base of all deliberate errors of engines and of code shared with gateways; its text is for people."""


class BadModel(EngineError):
    """A folder without a model that this engine can run."""

    def __init__(self, file: Path | str, field: str, problem: str) -> None:
        super().__init__(f"{file}: {field}: {problem}" if field else f"{file}: {problem}")
        self.file, self.field, self.problem = str(file), field, problem


class BadBundle(EngineError):
    """Bytes that are not a bundle."""


class RequestError(EngineError):
    """A request that is answered with an error; `field` is the parameter at fault, if there is one."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field, self.problem = field, problem


class BadRequest(RequestError):
    """The request can never succeed as it is."""


class TemplateExhausted(BadRequest):
    """The chat template takes more time or memory for the request than it may."""


class TemplateUnavailable(RequestError):
    """No process could render the chat. Another attempt may succeed."""
