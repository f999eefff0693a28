"""The control plane's clock, as far as its answers tell. Nothing here follows this machine's own: that may be wrong.

What was learnt is kept for the next start. While the machine has not been started anew, its steady clock goes on, and
so nobody's setting of the other one matters.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

MOST_SAMPLES = 8  # of the latest answers, the fastest is believed
MACHINE_BOOT = Path("/proc/sys/kernel/random/boot_id")
FARTHEST_SECONDS = 100 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Learnt:
    """`ahead`: of this machine's steady clock, as long as its boot is that one; `offset_seconds`: of the other."""

    machine_boot: str
    ahead: float
    offset_seconds: float


def learnt_encode(learnt: Learnt) -> bytes:
    return json.dumps(asdict(learnt)).encode()


def learnt_read(path: Path) -> Learnt | None:
    """None: there is nothing, or nothing that can be believed."""
    with suppress(OSError, ValueError, TypeError):
        found = Learnt(**json.loads(path.read_bytes()))
        if all(type(one) is float and abs(one) < FARTHEST_SECONDS for one in (found.ahead, found.offset_seconds)):
            return found
    return None


def machine_boot() -> str:
    """Empty, where nobody says which it is."""
    with suppress(OSError):
        return MACHINE_BOOT.read_text(encoding="ascii").strip()
    return ""


@dataclass(frozen=True, slots=True)
class _Sample:
    ahead: float  # of the steady clock, when it was taken
    width: float  # how long the answer took: it is that uncertain


class ControlPlaneClock:
    """`steady` only ever goes forward; `wall` is the machine's, and is believed until the first answer, unless there is
    something that was learnt before.
    """

    def __init__(
        self,
        before: Learnt | None = None,
        *,
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._steady, self._wall = steady, wall
        self._samples: deque[_Sample] = deque(maxlen=MOST_SAMPLES)
        self._machine_boot = machine_boot()
        self._ahead = wall() - steady()
        if before is not None:
            is_same = before.machine_boot == self._machine_boot != ""
            self._ahead = before.ahead if is_same else self._ahead + before.offset_seconds
        self._was_learnt = before is not None
        self.learnt = asyncio.Event()

    @property
    def is_learnt(self) -> bool:
        """Since this start."""
        return self.learnt.is_set()

    @property
    def is_known(self) -> bool:
        """By an answer, or as of the last start."""
        return self.is_learnt or self._was_learnt

    def kept(self) -> Learnt:
        """For the next start."""
        return Learnt(self._machine_boot, self._ahead, self.offset_seconds)

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
