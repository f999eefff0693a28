"""The control plane's clock, as far as its answers tell. Nothing here follows this machine's own: that may be wrong."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

MOST_SAMPLES = 8  # of the latest answers, the fastest is believed


@dataclass(frozen=True, slots=True)
class _Sample:
    ahead: float  # of the steady clock, when it was taken
    width: float  # how long the answer took: it is that uncertain


class ControlPlaneClock:
    """`steady` only ever goes forward; `wall` is the machine's, and is believed until the first answer."""

    def __init__(self, *, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._steady, self._wall = steady, wall
        self._samples: deque[_Sample] = deque(maxlen=MOST_SAMPLES)
        self._ahead = wall() - steady()
        self.learnt = asyncio.Event()

    @property
    def is_learnt(self) -> bool:
        return self.learnt.is_set()

    def now(self) -> float:
        """Unix seconds."""
        return self._steady() + self._ahead

    @property
    def offset_seconds(self) -> float:
        """How far it is ahead of this machine's clock, now."""
        return self.now() - self._wall()

    def learn(self, told: float, *, asked_at: float, answered_at: float) -> None:
        """`told` by an answer; when it was asked for and came, by the steady clock."""
        width = max(0.0, answered_at - asked_at)
        found = _Sample(told - (asked_at + answered_at) / 2, width)
        if any(abs(found.ahead - one.ahead) > (found.width + one.width) / 2 + 1.0 for one in self._samples):
            self._samples.clear()  # one of the clocks was set
        self._samples.append(found)
        self.learnt.set()
        self._ahead = min(self._samples, key=lambda one: one.width).ahead
