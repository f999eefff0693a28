"""The fleet's time: this machine's clock, corrected by the sidecar's estimate of the control plane's clock.

Gateways date identities by that clock, too, so an engine whose own clock is minutes off still accepts exactly the valid
ones.
"""

import time
from collections.abc import Callable


class FleetClock:
    """The fleet's clock. Later changes of the machine's clock have no effect, except through `set`."""

    def __init__(self, *, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._steady, self._wall = steady, wall
        self._ahead = wall() - steady()
        self.on_moved: Callable[[float], None] = _nothing

    def __call__(self) -> float:
        """Return unix seconds."""
        return self._steady() + self._ahead

    def set(self, offset_seconds: float) -> None:
        """Set how far the control plane's clock is ahead of this machine's, and report the change to `on_moved`."""
        ahead = self._wall() + offset_seconds - self._steady()
        moved, self._ahead = ahead - self._ahead, ahead
        self.on_moved(moved)


def _nothing(moved: float) -> None:
    """Do nothing; the default of `on_moved`."""
