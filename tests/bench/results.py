"""What a run found: the figures of each row, or why there are none, and where it was measured."""

import traceback
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tests.bench.figures import Figure
from tests.bench.machine import Commit, Machine


@dataclass(frozen=True, slots=True)
class RowError:
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class RowResult:
    key: str
    title: str
    target: str = ""
    beside: str | None = None
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: str | None = None
    error: RowError | None = None
    seconds: float = 0.0

    @property
    def status(self) -> Literal["failed", "not measured", "measured"]:
        return "failed" if self.error else "not measured" if self.skipped is not None else "measured"


@dataclass(slots=True)
class Run:
    """One `make bench`; `results` grows while it measures."""

    started: datetime
    commit: Commit
    machine: Machine
    versions: dict[str, str]
    repetitions: int | None = None  # --repetitions, which overrules the figures' own
    results: list[RowResult] = field(default_factory=list)
    is_complete: bool = False

    @property
    def stem(self) -> str:
        return f"{self.started:%Y%m%dT%H%M%SZ}-{self.commit.short}"


def error_of(problem: BaseException) -> RowError:
    message = " ".join("".join(traceback.format_exception_only(problem)).split())  # one line, for the table
    return RowError(message, "".join(traceback.format_exception(problem)))
