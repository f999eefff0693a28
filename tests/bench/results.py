"""What a run found: the figures of each row, or why there are none, and where it was measured."""

import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from tests.bench.figures import Figure
from tests.bench.machine import Commit, Machine
from tests.bench.noise import Noise


@dataclass(frozen=True, slots=True)
class RowError:
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Circumstances:
    """When a row was measured and of what: rows of one run may differ in that, where a run was resumed."""

    run: str  # whose it is: its stem
    started: datetime
    commit: Commit
    repetitions: int | None  # --repetitions, which overrules the figures' own
    noise: Noise | None = None

    def is_as(self, other: "Circumstances") -> bool:
        """Measured of the same code, as often. Of uncommitted changes nobody knows whether they are the same."""
        is_clean = self.commit.is_dirty is False and other.commit.is_dirty is False
        return is_clean and (self.commit, self.repetitions) == (other.commit, other.repetitions)


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
    circumstances: Circumstances | None = None

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
    def circumstances(self) -> Circumstances:
        """Of a row that begins now."""
        return Circumstances(self.stem, datetime.now(UTC), self.commit, self.repetitions)

    def measured_as(self, other: "Run") -> dict[str, RowResult]:
        """Of these rows, those that `other` need not measure again."""
        wanted = other.circumstances
        return {
            one.key: one
            for one in self.results
            if one.status == "measured" and one.circumstances and one.circumstances.is_as(wanted)
        }

    @property
    def stem(self) -> str:
        return f"{self.started:%Y%m%dT%H%M%SZ}-{self.commit.short}"


def error_of(problem: BaseException) -> RowError:
    message = " ".join("".join(traceback.format_exception_only(problem)).split())  # one line, for the table
    return RowError(message, "".join(traceback.format_exception(problem)))
