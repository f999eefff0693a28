"""One engine's state at a moment, as the gateway sees it: whether it answers, its load, and its share of requests."""

from dataclasses import dataclass

STEP_SECONDS = 0.05  # each such delay of a health check counts as one more request
MOST_MEASURED = 100
LEAST_FREE = 0.05  # share of a pool: if less is free, requests may wait for blocks although seats are free


@dataclass(frozen=True, slots=True)
class Standing:
    is_reachable: bool = True
    in_flight: int = 0  # requests of this gateway
    look_seconds: float = 0.0  # recent time of a health check, which the engine answers between two steps
    is_silent: bool = False  # silent for so long that it gets no requests until it answers a health check
    is_ejected: bool = False  # it fails, or has not answered a health check for long
    share: float = 1.0  # share of the requests it would normally get, while it returns
    # As the engine reports them, including other gateways' requests; 0 if it reports none.
    running: int = 0
    waiting: int = 0
    seats: int = 0
    free_blocks: int = 0
    pool_blocks: int = 0

    @property
    def is_wanted(self) -> bool:
        return self.is_reachable and not self.is_ejected

    @property
    def requests(self) -> int:
        """Return the larger of the engine's report, a moment old, and this gateway's own current count."""
        return max(self.in_flight, self.running + self.waiting)

    @property
    def queued(self) -> int:
        """Return how many of these wait until others end. A request reported as waiting while seats and blocks were
        free had just arrived, and has its seat by the time the report is read.
        """
        if not self.seats:
            return self.waiting
        unseated = max(0, self.requests - self.seats)
        return max(self.waiting, unseated) if self._is_out_of_blocks else unseated

    @property
    def _is_out_of_blocks(self) -> bool:
        return self.free_blocks < LEAST_FREE * self.pool_blocks

    @property
    def load(self) -> int:
        return self.requests + min(MOST_MEASURED, int(self.look_seconds / STEP_SECONDS))

    @property
    def is_full(self) -> bool:
        """Return whether one more request would have to wait. An engine that reports no seats never counts as full."""
        return self.seats > 0 and (self.in_flight >= self.seats or self.waiting > self.seats)
