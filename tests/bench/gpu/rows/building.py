"""BUILD: every kernel compiled for Hopper, with the registers and the shared memory it takes."""

import os

from tests.bench import Bench
from tests.bench.gpu.compiled import ALL, Chosen, compiled_apart
from tests.bench.gpu.registry import row
from tests.bench.gpu.setting import here


class NotBuilt(Exception):
    """Kernels that did not compile, or that have a matrix product with an FP8 operand."""


@row("BUILD", title="Kernels compiled ahead of time for sm_90: registers of a thread")
def build(bench: Bench) -> None:
    chosen: Chosen = {64: ("int4",)} if here().is_dry else ALL
    problems = []
    for number, outcome in enumerate(compiled_apart(os.cpu_count() or 1, chosen), 1):
        bench.step(f"{outcome.name} (kernel {number})", 0, 1)
        one = outcome.compiled
        if one is None:
            problems.append(f"{outcome.name}: {outcome.error}")
            continue
        problems += [f"{one.name}: {instruction}" for instruction in one.fp8_operands]
        sizes = {"spilled, bytes": one.spills_bytes, "shared memory, bytes": one.shared_bytes, "warps": one.warps}
        bench.record(one.name, unit="registers", values=[one.registers], parameters=sizes)
    if problems:
        raise NotBuilt("; ".join(problems))
