"""What else a machine did: before a row, while nothing of ours runs, and while it ran. A noisy row is one to run again.

Linux tells in /proc how busy its cores were, how much of them a hypervisor gave to others, and how long somebody waited
for one. What cannot be read is None, never guessed.
"""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 2.0
# Of all cores together. A quiet machine of two cores lies below 3 and 0.5.
BUSY_PERCENT, STOLEN_PERCENT = 15.0, 2.0
IDLE, IOWAIT, STEAL, COUNTED = 3, 4, 7, 8  # columns of /proc/stat; those after are parts of others
_WAITED = re.compile(r"^some .* total=(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Noise:
    """Percent of all cores, but for `waiting_percent`: of the row's time, in which somebody waited for a core."""

    load_before: float  # of the minute before, in which the row before may have ended
    busy_before_percent: float | None
    busy_after_percent: float | None
    stolen_percent: float | None
    waiting_percent: float | None

    @property
    def is_noisy(self) -> bool:
        """Somebody else had much to do right before or right after, or the cores were not all ours."""
        others = max(self.busy_before_percent or 0.0, self.busy_after_percent or 0.0)
        return others > BUSY_PERCENT or (self.stolen_percent or 0.0) > STOLEN_PERCENT


class Listening:
    """From before a row until after it. At either end it looks for two seconds at what others do."""

    def __init__(self) -> None:
        self._load = round(os.getloadavg()[0], 2)
        self._busy_before = self._busy()
        self._cores, self._waited, self._at = _cores(), _waited_seconds(), time.monotonic()

    def ended(self) -> Noise:
        stolen = _share(self._cores, _cores(), (STEAL,))
        wall, waited = time.monotonic() - self._at, _waited_seconds()
        waiting = None if waited is None or self._waited is None else 100 * (waited - self._waited) / wall
        return Noise(self._load, self._busy_before, self._busy(), _rounded(stolen), _rounded(waiting))

    def _busy(self) -> float | None:
        before = _cores()
        time.sleep(LOOK_SECONDS)
        idle = _share(before, _cores(), (IDLE, IOWAIT))
        return None if idle is None else _rounded(100 - idle)


def _cores(stat: Path = Path("/proc/stat")) -> tuple[int, ...] | None:
    """Ticks of all cores since the start, by what they were spent on."""
    if not stat.exists():
        return None
    first = stat.read_text(encoding="utf-8").split("\n", 1)[0]
    return tuple(int(ticks) for ticks in first.split()[1 : 1 + COUNTED])


def _share(before: tuple[int, ...] | None, after: tuple[int, ...] | None, columns: tuple[int, ...]) -> float | None:
    if before is None or after is None or sum(after) <= sum(before):
        return None
    return 100 * sum(after[one] - before[one] for one in columns) / (sum(after) - sum(before))


def _waited_seconds(pressure: Path = Path("/proc/pressure/cpu")) -> float | None:
    try:
        found = _WAITED.search(pressure.read_text(encoding="utf-8"))
    except OSError:  # not every kernel counts it, and some that could were told not to
        return None
    return int(found[1]) / 1e6 if found else None


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, 1)
