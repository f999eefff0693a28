"""Estimate the control plane's clock from its answers, without relying on this machine's wall clock.

The estimate is saved for the next start. Until the machine reboots, its monotonic clock continues, so changes to the
wall clock do not matter.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

MOST_SAMPLES = 8  # of the latest answers, the fastest decides
MACHINE_BOOT = Path("/proc/sys/kernel/random/boot_id")
FARTHEST_SECONDS = 100 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Learnt:
    """A saved estimate of the control plane's clock.

    `ahead` is relative to this machine's monotonic clock and valid until it reboots; `offset_seconds` is relative to
    its wall clock.
    """

    machine_boot: str
    ahead: float
    offset_seconds: float


def learnt_encode(learnt: Learnt) -> bytes:
    return json.dumps(asdict(learnt)).encode()


def learnt_read(path: Path) -> Learnt | None:
    """Return the saved estimate, or None if it is missing or invalid."""
    with suppress(OSError, ValueError, TypeError):
        learnt = Learnt(**json.loads(path.read_bytes()))
        if all(
            type(seconds) is float and abs(seconds) < FARTHEST_SECONDS
            for seconds in (learnt.ahead, learnt.offset_seconds)
        ):
            return learnt
    return None


def machine_boot() -> str:
    """Return the id of this boot of the machine, or "" if the system does not provide it."""
    with suppress(OSError):
        return MACHINE_BOOT.read_text(encoding="ascii").strip()
    return ""


@dataclass(frozen=True, slots=True)
class _Sample:
    ahead: float  # of the monotonic clock, when the sample was taken
    width: float  # duration of the request, which is the uncertainty of the sample


class ControlPlaneClock:
    """The control plane's clock as this machine estimates it.

    `steady` never goes backwards. `wall` is the machine's wall clock, used until the first answer unless an earlier
    estimate exists.
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
        """Return whether the control plane has answered since this start."""
        return self.learnt.is_set()

    @property
    def is_known(self) -> bool:
        """Return whether an estimate exists, from an answer or from the last start."""
        return self.is_learnt or self._was_learnt

    def kept(self) -> Learnt:
        """Return the estimate to save for the next start."""
        return Learnt(self._machine_boot, self._ahead, self.offset_seconds)

    def now(self) -> float:
        """Return the time in unix seconds."""
        return self._steady() + self._ahead

    @property
    def offset_seconds(self) -> float:
        """Return how far the control plane's clock is ahead of this machine's wall clock now."""
        return self.now() - self._wall()

    def learn(self, server_seconds: float, *, asked_at: float, answered_at: float) -> None:
        """Add a sample: the time in an answer, and when the request left and the answer came on the monotonic clock."""
        width = max(0.0, answered_at - asked_at)
        sample = _Sample(server_seconds - (asked_at + answered_at) / 2, width)
        if any(
            abs(sample.ahead - previous.ahead) > (sample.width + previous.width) / 2 + 1.0 for previous in self._samples
        ):
            self._samples.clear()  # one of the clocks was changed
        self._samples.append(sample)
        self.learnt.set()
        self._ahead = min(self._samples, key=lambda sample: sample.width).ahead
