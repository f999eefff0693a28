"""`make bench`: measure the rows of NUMBERS.md asked for, or all. Exit 0: measured, 1: a row failed, 2: nothing to do.

A figure short of its target never changes the exit code: benches report, they do not gate. Each row has a process of
its own, and what is measured is on disk after every row: `--resume` goes on with a run that was interrupted.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from engine_agent.tools.report import wants_colour, write_atomically
from tests.bench import machine
from tests.bench.apart import run_apart
from tests.bench.earlier import already_measured, earlier_runs, seconds_by_row
from tests.bench.files import write_json
from tests.bench.plots import write_plots
from tests.bench.progress import Outlook, Progress
from tests.bench.reading import newest_first
from tests.bench.registry import REGISTRY, Registry, Row, UnknownRow, discover
from tests.bench.results import RowResult, Run
from tests.bench.running import RunOne, is_interrupted, run_row, run_rows
from tests.bench.table import markdown, terminal

ROWS = "tests.bench.rows"


def main(
    argv: Sequence[str] | None = None,
    *,
    package: str = ROWS,
    registry: Registry = REGISTRY,
    run_one: RunOne = run_row,
) -> int:
    options = _options(argv)
    broken = discover(package)
    try:
        rows = registry.select(options.rows)
    except UnknownRow as unknown:
        print("\n".join([str(unknown), *_complaints(broken)]), file=sys.stderr)
        return 2
    if not rows and not broken:
        print(f"no rows in {package}, so nothing was measured", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join([_described(row) for row in rows] + _complaints(broken)))
        return 0
    if options.rows:  # someone else's broken module is worth a line, not a failure of the rows asked for
        print("".join(f"{line}\n" for line in _complaints(broken)), end="", file=sys.stderr)
        broken = []
    run = _measure(rows, broken, options, run_one)
    print(terminal(run, colour=wants_colour(sys.stdout)))
    _keep(run, options.out)
    return 1 if any(result.status == "failed" for result in run.results) else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure the figures of NUMBERS.md.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure, such as C1 (default: all)")
    parser.add_argument("--out", type=Path, default=default_out(), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--repetitions", type=_at_least_one, metavar="N", help="instead of each figure's own number")
    parser.add_argument(
        "--resume", action="store_true", help="keep rows that were measured at this commit, as often repeated"
    )
    parser.add_argument("--list", action="store_true", help="show the rows and stop")
    return parser.parse_args(argv)


def default_out() -> Path:
    return Path(os.environ.get("LUMINET_HOME") or machine.ROOT / ".luminet") / "bench"


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"at least 1, found {number}")
    return number


def _described(row: Row) -> str:
    beside = f"  (beside {row.beside})" if row.beside else ""
    return f"{row.key:4} {row.title}: {row.target or 'no target'}{beside}"


def _complaints(broken: Sequence[RowResult]) -> list[str]:
    return [f"{result.key} {result.title}: {result.error.message}" for result in broken if result.error]


def _measure(rows: Sequence[Row], broken: Sequence[RowResult], options: argparse.Namespace, run_one: RunOne) -> Run:
    run = Run(
        started=datetime.now(UTC),
        commit=machine.commit_of(),
        machine=machine.this_machine(),
        versions=machine.package_versions(),
        repetitions=options.repetitions,
        results=list(broken),
    )
    for result in _results(run, rows, options, run_one):
        run.results.append(result)
        write_json(run, options.out)
    run.is_complete = not any(is_interrupted(result) for result in run.results)
    return run


def _results(run: Run, rows: Sequence[Row], options: argparse.Namespace, run_one: RunOne) -> Iterator[RowResult]:
    """Of each row, in order: as it was measured before, where that is wanted, or measured now."""
    kept = already_measured(run, newest_first(options.out)) if options.resume else {}
    if options.resume and run.commit.is_dirty is not False:
        print("with uncommitted changes nothing is kept: all rows are measured anew", file=sys.stderr)
    left = [row for row in rows if row.key not in kept]
    progress = Progress(sys.stderr)
    outlook = Outlook(left, seconds_by_row(earlier_runs(options.out), options.repetitions))
    progress.say(outlook.before_all())
    measured = run_rows(
        left,
        repetitions=options.repetitions,
        on_step=progress.step,
        run_one=run_one,
        now=lambda: run.circumstances,
        on_row=lambda row: progress.say(outlook.before(left.index(row))),
    )
    for row in rows:
        if result := kept.get(row.key):
            when = result.circumstances.started if result.circumstances else run.started
            progress.say(f"{row.key} · kept, measured at {when:%Y-%m-%d %H:%M} UTC of the same commit")
        else:
            result = next(measured)
            progress.done(result)
        yield result


def _keep(run: Run, out: Path) -> None:
    """Write what a reader opens. Plots come after the JSON, which must not depend on them."""
    path = write_json(run, out)
    plots: dict[str, str] = {}
    try:
        plots = write_plots(run, out)
    except Exception as problem:  # a picture must not cost the run its table
        print(f"no plots: {problem}", file=sys.stderr)
    write_atomically(path.with_suffix(".md"), markdown(run, plots).encode())
    print(f"kept {path}, its .md and {2 * len(plots)} plots", file=sys.stderr)
    if not run.is_complete:
        print("interrupted: the same command with --resume (make bench RESUME=1) goes on", file=sys.stderr)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # an ASCII terminal shows "?" for "≤"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: rows stop what they started
    raise SystemExit(main(run_one=run_apart))
