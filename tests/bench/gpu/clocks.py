"""How long something takes: on a GPU by its own events, with nothing in its cache and without waiting for the host."""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Protocol

import torch

Work = Callable[[], object]
SPIN_CYCLES_A_MS = 2_000_000  # of any GPU's clock: about a millisecond
WARM_UP = 2


class Clock(Protocol):
    def launching(self, work: Work) -> float:
        """Run it until it is compiled and warm. Milliseconds after which the host has launched it."""

    def milliseconds(self, work: Work, launching: float) -> float:
        """Of one run."""


class HostClock:
    """For dry runs."""

    def launching(self, work: Work) -> float:
        return 0.0

    def milliseconds(self, work: Work, launching: float) -> float:
        began = perf_counter()
        work()
        return (perf_counter() - began) * 1e3


class GpuClock:
    """Before each run memory larger than the L2 cache is overwritten, and the GPU is kept busy for twice the time that
    the host takes to launch the work: between the two events there is nothing but the work.
    """

    def __init__(self, flush_bytes: int) -> None:
        self._flush = torch.empty(flush_bytes, dtype=torch.uint8, device="cuda")

    def launching(self, work: Work) -> float:
        for _ in range(WARM_UP):
            work()
        torch.cuda.synchronize()
        began = perf_counter()
        work()
        launched = (perf_counter() - began) * 1e3
        torch.cuda.synchronize()
        return launched

    def milliseconds(self, work: Work, launching: float) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
        self._flush.zero_()
        torch.cuda._sleep(int((0.5 + 2 * launching) * SPIN_CYCLES_A_MS))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))


def alternating(
    clock: Clock, sides: Mapping[str, Work], repetitions: int, on_step: Callable[[int], None]
) -> dict[str, list[float]]:
    """Milliseconds of each side, one run of each after the other; another one goes first in every round."""
    launching = {name: clock.launching(work) for name, work in sides.items()}
    names = list(sides)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for k in range(repetitions):
        on_step(k + 1)
        first = k % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(clock.milliseconds(sides[name], launching[name]))
    return taken
