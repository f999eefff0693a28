"""A run read back from the JSON that files.py writes, also where it has no samples, as in docs/performance."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, Series, Target
from tests.bench.files import SCHEMA_VERSION
from tests.bench.machine import Commit, Machine
from tests.bench.noise import Noise
from tests.bench.results import Circumstances, RowError, RowResult, Run
from tests.bench.stats import Statistics

Found = Mapping[str, Any]


class Unreadable(Exception):
    """The file is none of a run, or of one that was kept in another shape; names the file."""


def read_run(path: Path) -> Run:
    try:
        found = json.loads(path.read_bytes())
        version = found["schema_version"]
        if version != SCHEMA_VERSION:
            raise Unreadable(f"{path.name}: schema_version is {SCHEMA_VERSION}, found {version}")
        return run_of(found)
    except (ValueError, KeyError, TypeError) as problem:
        raise Unreadable(f"{path.name} is no run of the bench: {problem!r}") from problem


def newest_first(folder: Path) -> list[Run]:
    """All runs that are kept there and can be read; `latest.json` is a copy of one of them."""
    runs = []
    for path in folder.glob("*T*Z-*.json"):
        try:
            runs.append(read_run(path))
        except Unreadable:  # of an older bench, which nobody wants to go on with
            continue
    return sorted(runs, key=lambda run: run.started, reverse=True)


def run_of(found: Found) -> Run:
    return Run(
        started=datetime.fromisoformat(found["started"]),
        commit=Commit(found["commit"], found["is_dirty"]),
        machine=Machine(**found["machine"]),
        versions=dict(found["versions"]),
        repetitions=found["repetitions_override"],
        results=[row_of(one) for one in found["rows"]],
        is_complete=found["is_complete"],
    )


def row_of(found: Found) -> RowResult:
    return RowResult(
        key=found["key"],
        title=found["title"],
        target=found["target"],
        beside=found["beside"],
        figures=tuple(_figure(one) for one in found["figures"]),
        notes=tuple(found["notes"]),
        skipped=found["skipped"],
        error=RowError(**found["error"]) if found["error"] else None,
        seconds=found["seconds"],
        circumstances=_circumstances(found["measured"]),
    )


def _circumstances(found: Found | None) -> Circumstances | None:
    if found is None:
        return None
    heard = found["noise"]
    noise = Noise(**{name: value for name, value in heard.items() if name != "is_noisy"}) if heard else None
    return Circumstances(
        run=found["run"],
        started=datetime.fromisoformat(found["started"]),
        commit=Commit(found["commit"], found["is_dirty"]),
        repetitions=found["repetitions_override"],
        noise=noise,
    )


def _figure(found: Found) -> Figure:
    ours = _series(found["ours"])
    assert ours is not None
    return Figure(
        name=found["name"],
        kind=found["kind"],
        ours=ours,
        seconds=found["seconds"],
        parameters=dict(found["parameters"]),
        target=Target(**found["target"]) if found["target"] else None,
        theirs=_series(found["theirs"]),
        ratio=_series(found["ratio"]),
    )


def _series(found: Found | None) -> Series | None:
    if found is None:
        return None
    samples: Sequence[float] = found.get("samples", ())
    return Series(found["name"], found["unit"], tuple(samples), Statistics(**found["statistics"]))
