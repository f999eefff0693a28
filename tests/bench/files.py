"""What is kept of a run: JSON with every sample, written so that a reader never meets half a file."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine_agent.tools.report import write_atomically
from tests.bench.figures import Figure, Series
from tests.bench.measuring import METHODS
from tests.bench.results import Circumstances, RowResult, Run
from tests.bench.words import verdict

SCHEMA_VERSION = 2


def run_json(run: Run) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "is_complete": run.is_complete,
        "started": run.started.isoformat(),
        "commit": run.commit.revision,
        "is_dirty": run.commit.is_dirty,
        "machine": asdict(run.machine),
        "versions": run.versions,
        "methods": METHODS,
        "repetitions_override": run.repetitions,
        "rows": [row_json(result) for result in run.results],
    }


def row_json(result: RowResult) -> dict[str, Any]:
    return {
        "key": result.key,
        "title": result.title,
        "target": result.target,
        "beside": result.beside,
        "status": result.status,
        "skipped": result.skipped,
        "error": asdict(result.error) if result.error else None,
        "notes": list(result.notes),
        "seconds": result.seconds,
        "measured": _circumstances_json(result.circumstances),
        "figures": [_figure_json(figure) for figure in result.figures],
    }


def _circumstances_json(found: Circumstances | None) -> dict[str, Any] | None:
    if found is None:
        return None
    noise = {**asdict(found.noise), "is_noisy": found.noise.is_noisy} if found.noise else None
    return {
        "run": found.run,
        "started": found.started.isoformat(),
        "commit": found.commit.revision,
        "is_dirty": found.commit.is_dirty,
        "repetitions_override": found.repetitions,
        "noise": noise,
    }


def _figure_json(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "kind": figure.kind,
        "parameters": dict(figure.parameters),
        "target": asdict(figure.target) if figure.target else None,
        "judged_value": figure.judged_value,
        "is_met": figure.is_met,
        "verdict": verdict(figure),
        "seconds": figure.seconds,
        "ours": _series_json(figure.ours),
        "theirs": _series_json(figure.theirs),
        "ratio": _series_json(figure.ratio),
    }


def _series_json(series: Series | None) -> dict[str, Any] | None:
    return asdict(series) if series else None


def write_json(run: Run, out: Path) -> Path:
    """Written after every row, so that a machine that dies takes one row with it; `latest.json` once complete."""
    path = out / f"{run.stem}.json"
    content = json.dumps(run_json(run), ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"
    write_atomically(path, content)
    if run.is_complete:
        write_atomically(out / "latest.json", content)
    return path
