"""CHECK: every Triton kernel compiled and compared with its reference. The only row whose result can fail the run."""

import os
from collections.abc import Iterator, Sequence

import torch
import triton

from tests.bench import Bench, Target
from tests.bench.gpu.check_log import CheckLog, UnitOutcome, log_open, subject_of
from tests.bench.gpu.check_running import processes_for, units_checked
from tests.bench.gpu.check_worker import unit_run
from tests.bench.gpu.checks import Check, Unit, check_units
from tests.bench.gpu.registry import row
from tests.bench.gpu.setting import Setting, here, where


class CheckFailed(Exception):
    """Kernels that do not compile, or differ from their reference."""


@row("CHECK", title="Triton kernels against their references: error", target="within the bound of each")
def check(bench: Bench) -> None:
    setting = here()
    bench.note(where())
    units = check_units(setting)
    log = _log(setting)
    failed: list[str] = []
    for number, outcome in enumerate(_outcomes(setting, units, log), 1):
        bench.step(f"{outcome.unit}: unit {number} of {len(units)}, {outcome.seconds:.1f} s", 0, 1)
        if outcome.unit not in log.passed:
            log.append(outcome)
        failed += _recorded(bench, outcome)
    if log.passed:
        bench.note(f"resumed: {len(log.passed)} of {len(units)} units had passed before")
    if failed:
        raise CheckFailed("; ".join(failed))


def _log(setting: Setting) -> CheckLog:
    subject = subject_of(torch.__version__, triton.__version__, str(setting.gpu))
    return log_open(setting.out, subject, is_resumed=setting.is_resumed) if setting.out else CheckLog(None, subject)


def _outcomes(setting: Setting, units: Sequence[Unit], log: CheckLog) -> Iterator[UnitOutcome]:
    yield from log.passed.values()
    left = [unit for unit in units if unit.name not in log.passed]
    if setting.is_dry:
        yield from map(unit_run, left)
        return
    free, _ = torch.cuda.mem_get_info()
    processes = processes_for(len(left), os.cpu_count() or 1, free)
    yield from units_checked([unit.name for unit in left], processes)


def _recorded(bench: Bench, outcome: UnitOutcome) -> list[str]:
    """Record the unit's figures and return what failed."""
    if outcome.error:
        return [f"{outcome.unit}: {outcome.error}"]
    for one in outcome.checks:
        _record(bench, one)
    return [f"{one.name}: {max(one.errors)} > {one.bound}" for one in outcome.checks if not one.is_passed]


def _record(bench: Bench, one: Check) -> None:
    # A figure must be finite; the row's failure names the others.
    finite = [error for error in one.errors if error == error and error != float("inf")]
    if finite:
        bench.record(one.name, unit="", values=finite, target=Target("<=", one.bound, of="max"))
