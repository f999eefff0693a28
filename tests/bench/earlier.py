"""What earlier runs are good for: how long rows took, and what a run that was interrupted need not measure again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench import machine
from tests.bench.reading import newest_first, read_run
from tests.bench.results import RowResult, Run

KEPT = machine.ROOT / "docs" / "performance" / "run.json"


def earlier_runs(out: Path, kept: Path = KEPT) -> list[Run]:
    """The newest first; last the one that comes with the checkout."""
    return [*newest_first(out), *([read_run(kept)] if kept.exists() else [])]


def seconds_by_row(runs: Sequence[Run], repetitions: int | None) -> dict[str, float]:
    """Of each row, as it took when it was last measured with as many repetitions."""
    found: dict[str, float] = {}
    for result in (one for run in runs for one in run.results):
        now = result.circumstances
        if result.status == "measured" and now and now.repetitions == repetitions:
            found.setdefault(result.key, result.seconds)
    return found


def already_measured(run: Run, runs: Sequence[Run]) -> dict[str, RowResult]:
    """By key: rows of the commit of `run`, as often repeated, on this machine."""
    found: dict[str, RowResult] = {}
    for earlier in runs:
        if _is_same(earlier.machine, run.machine):
            found = {**earlier.measured_as(run), **found}
    return found


def _is_same(one: machine.Machine, other: machine.Machine) -> bool:
    return replace(one, load_1min=0.0) == replace(other, load_1min=0.0)
