"""What docs/performance/run.json keeps of a run: every figure with its statistics, without its samples.

Rows that a newer run did not measure stay as they were, each with its own commit and date; the page says so.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.bench import machine
from tests.bench.files import run_json
from tests.bench.machine import Machine
from tests.bench.registry import natural
from tests.bench.report.numbers import BY_KEY
from tests.bench.results import RowResult, Run
from tests.bench.running import is_interrupted

DIGITS = 6  # more than any page shows, and than any figure repeats
_RECKONED = ("judged_value", "is_met", "verdict")  # the target and the statistics say it again


class OtherMachine(Exception):
    """Rows of different machines do not belong on one page."""


def merged(kept: Run | None, newer: Run) -> Run:
    """The newer run, and what only the kept one has."""
    kept = kept or replace(newer, results=[])
    if _what(kept.machine) != _what(newer.machine):
        raise OtherMachine(
            f"measured on {_what(newer.machine)}, kept is {_what(kept.machine)}: start anew with --alone"
        )
    rows = {one.key: one for one in kept.results}
    rows |= {one.key: one for one in newer.results if _says_more(one, rows.get(one.key))}
    return replace(newer, results=[rows[key] for key in sorted(rows, key=natural)])


def _what(found: Machine) -> str:
    return f"{found.cpu}, {found.cores} cores, {found.memory_gib} GiB, Python {found.python}"


def _says_more(result: RowResult, kept: RowResult | None) -> bool:
    """What was cut short by Ctrl-C says less than what is kept, and more than nothing. A file of rows is no row."""
    if result.key not in BY_KEY:
        return False
    return not is_interrupted(result) or (kept is None and bool(result.figures))


def kept_text(run: Run) -> bytes:
    """One line for each figure, so that a difference between two runs can be read."""
    found = _rounded(run_json(run))
    rows = ",\n".join(_row_text(one) for one in found.pop("rows"))
    head = json.dumps(found, ensure_ascii=False, indent=1).removesuffix("\n}")
    return f'{head},\n "rows": [\n{rows}\n ]\n}}\n'.encode()


def _row_text(row: dict[str, Any]) -> str:
    if row["error"]:
        row["error"] = {"message": _without_place(row["error"]["message"]), "traceback": ""}
    row["notes"] = [_without_place(note) for note in row["notes"]]
    row["skipped"] = _without_place(row["skipped"]) if row["skipped"] else row["skipped"]
    figures = ",\n".join(f"   {_line(_slim(one))}" for one in row.pop("figures"))
    return f'  {_line(row).removesuffix("}")}, "figures": [\n{figures}\n  ]}}'


def _without_place(text: str) -> str:
    """Where somebody's checkout lies is nobody's concern."""
    return text.replace(f"{machine.ROOT}/", "").replace(str(machine.ROOT), "the checkout")


def _slim(figure: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in figure.items() if name not in _RECKONED}
    for side in ("ours", "theirs", "ratio"):
        if kept[side]:
            kept[side] = {name: value for name, value in kept[side].items() if name != "samples"}
    return kept


def _line(found: Mapping[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _rounded(found: Any) -> Any:
    if isinstance(found, float):
        return float(f"{found:.{DIGITS}g}")
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in found.items()}
    return [_rounded(one) for one in found] if isinstance(found, list | tuple) else found
