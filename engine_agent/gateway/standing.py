"""What a gateway knows of one engine at a moment: whether it answers, how much it has to do, how much it may get."""

from dataclasses import dataclass

STEP_SECONDS = 0.05  # an engine that takes so much longer to look up from its work counts as one request busier
MOST_MEASURED = 100
LEAST_FREE = 0.05  # of a pool: with less, who waits there may wait for blocks, whatever seats are free


@dataclass(frozen=True, slots=True)
class Standing:
    is_reachable: bool = True
    in_flight: int = 0  # requests of this gateway's
    look_seconds: float = 0.0  # it took lately to say that it is well: it does so between two steps
    is_silent: bool = False  # for so long that it is asked no more until it answers a look
    is_ejected: bool = False  # it fails, or a look at it has had no answer for long
    share: float = 1.0  # of what it would get, while it comes back
    # As the engine tells of itself, other gateways' requests among them; 0 where it does not.
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
        """What it tells is a moment old; what is under way from here is known at once."""
        return max(self.in_flight, self.running + self.waiting)

    @property
    def queued(self) -> int:
        """Of these, those that others have to end for. Who was told as waiting while seats and blocks were free had
        only just come: by the time that is read, it has its seat.
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
        """One more would have to wait there. Where an engine tells no seats, nobody knows."""
        return self.seats > 0 and (self.in_flight >= self.seats or self.waiting > self.seats)
