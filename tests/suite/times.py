"""What a recorded run's time went to: kept in durations.json, and as tables in docs/testing.md."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.suite.files import CHECKOUT, RECORDED

PAGE = CHECKOUT / "docs" / "testing.md"
BEGIN = "<!-- durations: written by make durations -->"
END = "<!-- /durations -->"
SHOWN_FILES = 25
SHOWN_FIXTURES = 15


@dataclass(slots=True)
class Times:
    """In seconds; of all processes of a run together, but for `seconds`, which is the run's own."""

    seconds: float = 0.0
    collection: float = 0.0
    processes: int = 0
    tests: int = 0
    files: dict[str, float] = field(default_factory=dict)
    fixtures: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Times") -> None:
        self.collection += other.collection
        self.processes += 1
        self.tests += other.tests
        for own, others in ((self.files, other.files), (self.fixtures, other.fixtures)):
            for name, seconds in others.items():
                count(own, name, seconds)


def count(sums: dict[str, float], name: str, seconds: float) -> None:
    sums[name] = sums.get(name, 0.0) + seconds


def recorded(times: Times, day: str) -> dict[str, object]:
    """As it is kept: small, and the same twice for the same times."""
    return {
        "recorded": day,
        "seconds": round(times.seconds),
        "collection": round(times.collection, 1),
        "processes": max(times.processes, 1),
        "tests": times.tests,
        "fixtures": {name: round(took, 1) for name, took in _longest(times.fixtures, SHOWN_FIXTURES).items()},
        "files": {name: max(0.1, round(took, 1)) for name, took in sorted(times.files.items())},
    }


def write(times: Times) -> None:
    kept = recorded(times, f"{datetime.now(UTC):%Y-%m-%d}")
    RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{tables(kept)}{END}{rest.partition(END)[2]}")


def tables(kept: Mapping[str, object]) -> str:
    files, fixtures = kept["files"], kept["fixtures"]
    assert isinstance(files, dict)
    assert isinstance(fixtures, dict)
    folders: dict[str, float] = {}
    for file, took in files.items():
        count(folders, "/".join(file.split("/")[:2]), took)
    head = (
        f"Recorded on {kept['recorded']}: {kept['tests']:,} tests in {kept['seconds']} s by {kept['processes']} "
        f"processes, of which collection took {kept['collection']} s of processor time.\n"
    )
    return "\n".join(
        (
            head,
            _table("folder", folders),
            _table("file", _longest(files, SHOWN_FILES)),
            _table("fixture (scope), all its starts together", fixtures),
        )
    )


def _longest(seconds: Mapping[str, float], most: int) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda one: (-one[1], one[0]))[:most])


def _table(what: str, seconds: Mapping[str, float]) -> str:
    rows = [f"| `{name}` | {took:.1f} s |" for name, took in _longest(seconds, len(seconds)).items()]
    return "\n".join((f"| {what} | time |", "|---|---|", *rows, ""))
