"""What time it is in the fleet: this machine's clock, put right by what the sidecar knows of the control plane's.

Gateways date identities by that clock too, so an engine whose own is minutes off believes what it may believe, no more.
"""

import time
from collections.abc import Callable


class FleetClock:
    """A machine's clock that is set while this runs changes nothing: only the first look at it counts, and `set`."""

    def __init__(self, *, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._steady, self._wall = steady, wall
        self._ahead = wall() - steady()
        self.on_moved: Callable[[float], None] = _nothing

    def __call__(self) -> float:
        """Unix seconds."""
        return self._steady() + self._ahead

    def set(self, offset_seconds: float) -> None:
        """The control plane's clock is so far ahead of this machine's. Who remembers instants hears how it moved."""
        ahead = self._wall() + offset_seconds - self._steady()
        moved, self._ahead = ahead - self._ahead, ahead
        self.on_moved(moved)


def _nothing(moved: float) -> None:
    """Nobody remembers any."""
