"""`make performance`: keep the newest run of `make bench` in docs/performance and write the page, its pictures and the
README's figures.

Exit 0: written; 1: written, and a figure falls short that no reason is given for; 2: there is nothing to write from.
`--again` writes from what is kept: after a change to the words.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine_agent.tools.report import write_atomically
from tests.bench import machine
from tests.bench.__main__ import default_out
from tests.bench.earlier import KEPT
from tests.bench.reading import Unreadable, read_run
from tests.bench.report.kept import OtherMachine, kept_text, merged
from tests.bench.report.notes import sections_in
from tests.bench.report.page import Report
from tests.bench.report.pictures import charts
from tests.bench.report.readme import with_figures
from tests.bench.report.svg import svg
from tests.bench.results import Run

DOCS, README = machine.ROOT / "docs", machine.ROOT / "README.md"
FOLDER, PAGE, NOTES = DOCS / "performance", DOCS / "performance.md", DOCS / "performance" / "notes"


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    try:
        if not options.again:
            _keep([read_run(path) for path in options.runs], alone=options.alone)
        run = read_run(KEPT)
    except (OSError, Unreadable, OtherMachine) as problem:
        print(f"luminet: {problem}; make bench measures a run", file=sys.stderr)
        return 2
    for path, content in written(run).items():
        write_atomically(path, content.encode())
    missing = Report(run, sections_in(NOTES)).missing_reasons()
    for figure in missing:
        print(f"luminet: {figure} falls short, and docs/performance/notes says no reason", file=sys.stderr)
    return 1 if missing else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.report", description="Write docs/performance.md.")
    parser.add_argument(
        "runs", nargs="*", type=Path, default=[default_out() / "latest.json"], help="JSON of runs, oldest first"
    )
    parser.add_argument("--alone", action="store_true", help="keep nothing of what is kept so far")
    parser.add_argument("--again", action="store_true", help="measure nothing new: write from what is kept")
    return parser.parse_args(argv)


def _keep(runs: Sequence[Run], *, alone: bool) -> None:
    kept = None if alone or not KEPT.exists() else read_run(KEPT)
    for run in runs:
        kept = merged(kept, run)
    assert kept is not None
    write_atomically(KEPT, kept_text(kept))


def written(run: Run) -> dict[Path, str]:
    """All that is made of a kept run and of the words, by where it goes."""
    report = Report(run, sections_in(NOTES))
    pictures = {FOLDER / f"{name}.svg": svg(chart) for name, chart in charts(report.rows).items()}
    readme = with_figures(README.read_text(encoding="utf-8"), run)
    return {PAGE: report.page(), README: readme, **pictures}


if __name__ == "__main__":
    raise SystemExit(main())
