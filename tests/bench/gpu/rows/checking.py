"""CHECK: every Triton kernel against its reference. The only row whose result can fail the run."""

from tests.bench import Bench, Target
from tests.bench.gpu.checks import all_checks
from tests.bench.gpu.registry import row
from tests.bench.gpu.setting import here, where


class CheckFailed(Exception):
    """Kernels that are not what their reference is."""


@row("CHECK", title="Triton kernels against their references: error", target="within the bound of each")
def check(bench: Bench) -> None:
    bench.note(where())
    failed = []
    for number, one in enumerate(all_checks(here()), 1):
        bench.step(f"{one.name} (check {number})", 0, len(one.errors))
        # A figure must be finite; that it was not is told by the failure.
        finite = [error for error in one.errors if error == error and error != float("inf")]
        if finite:
            bench.record(one.name, unit="", values=finite, target=Target("<=", one.bound, of="max"))
        if not one.is_passed:
            failed.append(f"{one.name}: {max(one.errors)} > {one.bound}")
    if failed:
        raise CheckFailed("; ".join(failed))
