"""Virtual time: what happens next, happens now. The same calls in the same order give the same run, always."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

MOST_STEPS = 50_000  # of one run, which needs a few thousand: beyond that somebody turns in circles
BEGINNING = 1_800_000_000.0  # unix seconds: any instant would do, so long as no real clock is asked


class Circling(Exception):
    """Something sets itself off again and again."""


@dataclass(slots=True)
class Timeline:
    now: float = BEGINNING
    steps: int = 0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)

    def after(self, seconds: float, deed: Callable[[], None]) -> None:
        """What is due at the same moment happens in the order in which it was asked for."""
        heapq.heappush(self._due, (self.now + max(0.0, seconds), next(self._numbers), deed))

    def step(self) -> bool:
        """Do what is due next; False when nothing is left to do."""
        if not self._due:
            return False
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Circling(f"more than {MOST_STEPS} steps, {self.now - BEGINNING:.3f} s after the beginning")
        self.now, _, deed = heapq.heappop(self._due)
        deed()
        return True

    def run_until(self, moment: float) -> None:
        while self._due and self._due[0][0] <= moment:
            self.step()
        self.now = max(self.now, moment)
