"""The arithmetic of rate limits. rate_limits.py counts for all processes.

The rule is GCRA: each admitted request moves a token's "paid until" forward by one interval, at most a minute ahead of
the clock. So an idle token can make a minute's requests at once, and then one for each interval that passes.
"""

import threading
from dataclasses import dataclass

WINDOW_SECONDS = 60
MICROSECONDS = 1_000_000
MOST_LOCAL_TOKENS = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    limit: int
    remaining: int
    reset_seconds: int  # until the whole limit is available again
    retry_after: int | None  # None if the request is admitted


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit in whole microseconds, so that rounding never adds or loses a request."""

    limit: int

    @property
    def interval(self) -> int:
        return -(-WINDOW_SECONDS * MICROSECONDS // self.limit)

    @property
    def window(self) -> int:
        return self.interval * self.limit

    def verdict(self, *, is_admitted: bool, ahead: int) -> Verdict:
        """Return the verdict. `ahead`: microseconds beyond now that the token has paid for, with this request."""
        wait = None if is_admitted else max(1, _whole_seconds(ahead + self.interval - self.window))
        return Verdict(self.limit, (self.window - ahead) // self.interval, _whole_seconds(ahead), wait)


class LocalBuckets:
    """The same rule for this process only."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._paid: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, token_id: str, now: int) -> Verdict:
        with self._lock:
            paid = min(max(self._paid.get(token_id, now), now), now + self._rate.window)
            is_admitted = paid + self._rate.interval <= now + self._rate.window
            if is_admitted:
                paid += self._rate.interval
                self._remember(token_id, paid, now)
        return self._rate.verdict(is_admitted=is_admitted, ahead=paid - now)

    def _remember(self, token_id: str, paid: int, now: int) -> None:
        if len(self._paid) >= MOST_LOCAL_TOKENS:
            self._paid = {token: until for token, until in self._paid.items() if until > now}
        self._paid[token_id] = paid


def headers(verdict: Verdict) -> dict[str, str]:
    """Return the headers of the current IETF draft, and the three older ones that most clients read."""
    limit, remaining, reset = (str(number) for number in (verdict.limit, verdict.remaining, verdict.reset_seconds))
    fields = {
        "RateLimit-Policy": f'"token";q={limit};w={WINDOW_SECONDS}',
        "RateLimit": f'"token";r={remaining};t={reset}',
        "RateLimit-Limit": limit,
        "RateLimit-Remaining": remaining,
        "RateLimit-Reset": reset,
    }
    return fields if verdict.retry_after is None else fields | {"Retry-After": str(verdict.retry_after)}


def _whole_seconds(microseconds: int) -> int:
    return -(-microseconds // MICROSECONDS)
