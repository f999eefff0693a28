"""Runs rows one after the other; a row that fails takes nothing from the others."""

import time
from collections.abc import Iterable, Iterator

from tests.bench.measuring import Bench, OnStep, SkipRow, silent
from tests.bench.registry import Row
from tests.bench.results import RowResult, error_of


class SilentRow(Exception):
    """A row returned without a figure and without saying why."""


def run_row(row: Row, *, repetitions: int | None = None, on_step: OnStep = silent) -> RowResult:
    """Run one row. Whatever it raises becomes part of its result, beside the figures it had taken."""
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


def run_rows(rows: Iterable[Row], *, repetitions: int | None = None, on_step: OnStep = silent) -> Iterator[RowResult]:
    """Run rows one after the other. After Ctrl-C the rest is reported as not measured, and what was taken is kept."""
    was_interrupted = False
    for row in rows:
        if was_interrupted:
            yield RowResult(row.key, row.title, row.target, row.beside, skipped="interrupted before its turn")
            continue
        result = run_row(row, repetitions=repetitions, on_step=on_step)
        was_interrupted = result.error is not None and result.error.message == "KeyboardInterrupt"
        yield result
