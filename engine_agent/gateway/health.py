"""Decides by the outcome of its requests whether an engine gets more. Pure: callers pass the time.

An engine that fails repeatedly is ejected, longer each time, and returns slowly: its share grows with the seconds since
its return. A single failure costs it nothing, and neither does a request that any engine would have refused.
"""

from dataclasses import dataclass

IN_A_ROW = 3
RATIO, LEAST_REQUESTS = 0.5, 10  # the share of failures that ejects, after at least so many requests
NEWEST = 0.1  # the weight of the newest request
EJECTED_SECONDS, MOST_EJECTED_SECONDS = 5.0, 60.0
AWAY_SECONDS = 5.0  # shorter absences do not reduce the share
RETURN_SECONDS, LEAST_SHARE = 10.0, 0.1
GOOD_SECONDS = 60.0  # an ejection so long ago no longer counts


@dataclass(slots=True)
class Health:
    failed_in_a_row: int = 0
    failing: float = 0.0  # a moving average of failures
    requests: int = 0  # requests since the last ejection
    times: int = 0  # number of ejections in close succession
    ejected_until: float = 0.0
    has_been: bool = False  # it has answered before: its first appearance is not a return
    away_since: float | None = None
    back_since: float | None = None

    def succeeded(self) -> None:
        self._count(0.0)
        self.failed_in_a_row = 0

    def failed(self, now: float) -> bool:
        """Record a failed request, and return whether this failure ejects the engine."""
        self._count(1.0)
        self.failed_in_a_row += 1
        is_failing = self.requests >= LEAST_REQUESTS and self.failing >= RATIO
        if self.is_ejected(now) or not (self.failed_in_a_row >= IN_A_ROW or is_failing):
            return False
        self._eject(now)
        return True

    def gone(self, now: float) -> None:
        if self.away_since is None:
            self.away_since = now

    def back(self, now: float) -> None:
        if self.has_been and self.away_since is not None and now - self.away_since >= AWAY_SECONDS:
            self.back_since = now
        self.has_been, self.away_since = True, None

    def is_ejected(self, now: float) -> bool:
        return now < self.ejected_until

    def share(self, now: float) -> float:
        """Return the engine's share of the requests it would normally get."""
        return_began = max(self.ejected_until, self.back_since or 0.0)
        if not return_began or now - return_began >= RETURN_SECONDS:
            return 1.0
        return max(LEAST_SHARE, (now - return_began) / RETURN_SECONDS)

    def _count(self, failed: float) -> None:
        self.requests += 1
        self.failing += NEWEST * (failed - self.failing)

    def _eject(self, now: float) -> None:
        self.times = self.times + 1 if now - self.ejected_until < GOOD_SECONDS and self.times else 1
        self.ejected_until = now + min(MOST_EJECTED_SECONDS, EJECTED_SECONDS * 2 ** (self.times - 1))
        self.failed_in_a_row = self.requests = 0
        self.failing = 0.0
