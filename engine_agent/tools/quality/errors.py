"""What can be wrong with text or an artefact: each names the file, the field, and what was found."""

from pathlib import Path


class QualityError(Exception):
    """Something the caller can put right; its text is for people."""


class BadText(QualityError):
    """Text that nothing can be measured on."""

    def __init__(self, file: Path | str, problem: str) -> None:
        super().__init__(f"{file}: {problem}")


class BadPlan(QualityError):
    """What is to be measured cannot be."""

    def __init__(self, field: str, value: object, wanted: str) -> None:
        super().__init__(f"{field}: {value!r} is not {wanted}")
        self.field = field


class BadArtefact(QualityError):
    """A quality artefact that cannot be believed."""

    def __init__(self, file: Path | str, field: str, problem: str) -> None:
        super().__init__(f"{file}: {field}: {problem}" if field else f"{file}: {problem}")
        self.field = field


class CannotPublish(QualityError):
    """What was found cannot be sent to the control plane that was named."""


class CannotPlot(QualityError):
    """A plot was asked for, and what draws it is not installed."""
