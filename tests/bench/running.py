"""Runs rows one after the other; a row that fails takes nothing from the others."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tests.bench.measuring import Bench, OnStep, SkipRow, silent
from tests.bench.noise import Listening
from tests.bench.registry import Row
from tests.bench.results import Circumstances, RowResult, error_of

INTERRUPTED, NOT_ITS_TURN = "KeyboardInterrupt", "interrupted before its turn"
RunOne = Callable[[Row, int | None, OnStep], RowResult]  # row, repetitions, on_step


class SilentRow(Exception):
    """A row returned without a figure and without saying why."""


def run_row(row: Row, repetitions: int | None = None, on_step: OnStep = silent) -> RowResult:
    """Run one row here. Whatever it raises becomes part of its result, beside the figures it had taken."""
    bench = Bench(row.key, repetitions=repetitions, on_step=on_step)
    began = time.perf_counter()
    skipped, error = None, None
    try:
        row.run(bench)
        if not bench.figures:
            raise SilentRow("the row took no figure and gave no reason; use bench.skip(reason)")
    except SkipRow as skip:
        skipped = str(skip)
    except (Exception, SystemExit, KeyboardInterrupt) as problem:
        error = error_of(problem)
    figures, notes = tuple(bench.figures), tuple(bench.notes)
    seconds = time.perf_counter() - began
    return RowResult(row.key, row.title, row.target, row.beside, figures, notes, skipped, error, seconds)


def run_rows(
    rows: Iterable[Row],
    *,
    repetitions: int | None = None,
    on_step: OnStep = silent,
    run_one: RunOne = run_row,
    now: Callable[[], Circumstances] | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> Iterator[RowResult]:
    """Run rows one after the other. After Ctrl-C the rest is reported as not measured, and what was taken is kept.

    With `now` each result says when it was measured, of which commit, and what else the machine did.
    """
    was_interrupted = False
    for row in rows:
        if was_interrupted:
            yield RowResult(row.key, row.title, row.target, row.beside, skipped=NOT_ITS_TURN)
            continue
        on_row(row)
        try:
            result = _observed(row, repetitions, on_step, run_one, now) if now else run_one(row, repetitions, on_step)
        except KeyboardInterrupt as problem:
            result = RowResult(row.key, row.title, row.target, row.beside, error=error_of(problem))
        was_interrupted = is_interrupted(result)
        yield result


def is_interrupted(result: RowResult) -> bool:
    """By Ctrl-C, under way or before its turn."""
    return result.skipped == NOT_ITS_TURN or (result.error is not None and result.error.message == INTERRUPTED)


def _observed(
    row: Row, repetitions: int | None, on_step: OnStep, run_one: RunOne, now: Callable[[], Circumstances]
) -> RowResult:
    circumstances, listening = now(), Listening()
    result = run_one(row, repetitions, on_step)
    return replace(result, circumstances=replace(circumstances, noise=listening.ended()))
