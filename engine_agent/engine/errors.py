"""What can be wrong with a model's folder: each names the file, the field, and what was found."""

from pathlib import Path


class EngineError(Exception):
    """Everything this package raises on purpose; its text is for people."""


class BadModel(EngineError):
    """A folder that holds no model this engine can run."""

    def __init__(self, file: Path | str, field: str, problem: str) -> None:
        super().__init__(f"{file}: {field}: {problem}" if field else f"{file}: {problem}")
        self.file, self.field, self.problem = str(file), field, problem
