"""What CHECK has found so far, a line of JSON for each unit: a run that was cut off goes on where it stopped.

A line counts for the same kernels, libraries and card alone, whatever the commit is called: a copy of the checkout
without git's history can resume, too.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.gpu.checks import Check
from tests.bench.machine import ROOT

FILE_NAME = "gpu-checks.jsonl"
SOURCES = ("kernels", "tests/bench/gpu")


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What a unit's checks found, or why they could not be made."""

    unit: str
    checks: tuple[Check, ...] = ()
    error: str = ""
    seconds: float = 0.0

    @property
    def is_passed(self) -> bool:
        return not self.error and all(check.is_passed for check in self.checks)


@dataclass(slots=True)
class CheckLog:
    """`path` None keeps nothing."""

    path: Path | None
    subject: str  # kernels, libraries and card; what was found of another subject is not resumed
    passed: dict[str, UnitOutcome] = field(default_factory=dict)

    def append(self, outcome: UnitOutcome) -> None:
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"subject": self.subject, **outcome_packed(outcome)}) + "\n")


def log_open(folder: Path, subject: str, *, is_resumed: bool) -> CheckLog:
    """Resume the log in the folder, or start over."""
    folder.mkdir(parents=True, exist_ok=True)
    log = CheckLog(folder / FILE_NAME, subject)
    assert log.path is not None
    if not is_resumed:
        log.path.unlink(missing_ok=True)
    elif log.path.exists():
        log.passed = _passed(log.path.read_text(encoding="utf-8"), subject)
    return log


def _passed(text: str, subject: str) -> dict[str, UnitOutcome]:
    """A line that was cut off in the middle does not count."""
    found: dict[str, UnitOutcome] = {}
    for line in text.splitlines():
        try:
            packed = json.loads(line)
        except ValueError:
            continue
        outcome = outcome_unpacked(packed)
        if packed["subject"] == subject and outcome.is_passed:
            found[outcome.unit] = outcome
    return found


def outcome_packed(outcome: UnitOutcome) -> dict[str, Any]:
    checks = [{"name": one.name, "bound": one.bound, "errors": [*map(_packed, one.errors)]} for one in outcome.checks]
    return {"unit": outcome.unit, "checks": checks, "error": outcome.error, "seconds": round(outcome.seconds, 3)}


def outcome_unpacked(packed: Mapping[str, Any]) -> UnitOutcome:
    checks = tuple(Check(one["name"], one["bound"], tuple(map(float, one["errors"]))) for one in packed["checks"])
    return UnitOutcome(packed["unit"], checks, packed["error"], packed["seconds"])


def _packed(error: float) -> float | str:
    return error if math.isfinite(error) else str(error)  # JSON has no word for the others


def subject_of(*versions: str, root: Path = ROOT) -> str:
    """A hash of the kernels' sources and of what compiles and runs them."""
    digest = hashlib.sha256("\n".join(versions).encode())
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(f"\n{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
