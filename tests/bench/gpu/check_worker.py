"""A process that makes checks, one unit after the other: `python -m tests.bench.gpu.check_worker [--dry-run]`.

A kernel that faults takes the CUDA context of its process with it, and so the process: not the other units.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.bench.answers import Answer, serve
from tests.bench.gpu.check_log import UnitOutcome, outcome_packed
from tests.bench.gpu.checks import Unit, check_units
from tests.bench.gpu.setting import choose, dry_setting, gpu_setting, here

LAST_CHARACTERS = 2_000


def unit_run(unit: Unit) -> UnitOutcome:
    began = time.perf_counter()
    try:
        checks, error = tuple(unit.run()), ""
    except Exception as problem:  # Triton's and CUDA's errors are of many kinds, and each is a finding
        checks, error = (), f"{type(problem).__name__}: {problem}"[-LAST_CHARACTERS:]
    return UnitOutcome(unit.name, checks, error, time.perf_counter() - began)


def _prepare() -> tuple[Mapping[str, Any], Answer]:
    choose(dry_setting() if "--dry-run" in sys.argv else gpu_setting())
    units = {unit.name: unit for unit in check_units(here())}

    def answer(question: Mapping[str, Any]) -> Mapping[str, Any]:
        return outcome_packed(unit_run(units[question["unit"]]))

    return {"units": list(units)}, answer


if __name__ == "__main__":
    serve(_prepare)
