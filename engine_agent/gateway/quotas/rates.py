"""An organisation's usage of its limits here: requests and tokens a minute, and concurrent requests. Pure.

A rate is a bucket of one minute's worth that refills over time: after a rest, all of it is available at once. Several
gateways share each limit evenly, and know only how many they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MINUTE = 60.0
MOST_KNOWN = 20_000  # organisations with a stored usage
Limit = Literal["requests_per_minute", "tokens_per_minute", "concurrent_requests"]


class Exceeded(Exception):
    """The request exceeds what is left now. Nothing was taken."""

    def __init__(self, limit: Limit, most: int, requested: int, seconds: float) -> None:
        self.limit, self.most, self.wanted, self.seconds = limit, most, requested, seconds
        super().__init__(f"{limit}: {most}")


@dataclass(frozen=True, slots=True)
class Level:
    """The state of a rate: of `limit` a minute, `remaining` is left here, and all of it after `reset_seconds`."""

    limit: int
    remaining: int
    reset_seconds: float


@dataclass(slots=True)
class Bucket:
    """A rate's bucket. It stores what was taken, so that its size may change meanwhile."""

    taken: float = 0.0
    at: float = 0.0

    def seen(self, rate: float, now: float) -> float:
        """Return what is still taken. A clock that was set back changes nothing."""
        self.taken = max(0.0, self.taken - max(0.0, now - self.at) * rate / MINUTE)
        self.at = now
        return self.taken

    def wait_seconds(self, rate: float, amount: float, now: float) -> float:
        """Return the time until `amount` may be taken. More than the bucket's size may be taken when it is full,
        otherwise it never could; the bucket then takes longer to refill.
        """
        size = max(1.0, rate)
        excess = self.seen(rate, now) + min(amount, size) - size
        return 0.0 if excess <= 1e-9 else excess * MINUTE / rate


@dataclass(slots=True)
class Used:
    """The usage of one organisation."""

    requests: Bucket = field(default_factory=Bucket)
    tokens: Bucket = field(default_factory=Bucket)
    running: int = 0

    def is_idle(self, now: float) -> bool:
        """Return whether it can be forgotten: buckets not used for long are full, or almost, whatever their rate."""
        return not self.running and now - max(self.requests.at, self.tokens.at) > 2 * MINUTE


class Quotas:
    """The usage of every organisation at this gateway."""

    def __init__(self) -> None:
        self._used: dict[str, Used] = {}

    def take(
        self, organisation: str, limits: Mapping[str, Any], *, tokens: int, gateways: int, now: float
    ) -> "Taken | None":
        """Take all that one request needs, or raise Exceeded and take nothing. None: nothing is limited."""
        if not limits:
            return None
        used = self._of(organisation, now)
        grant = Taken(used, limits, gateways, tokens)
        grant.check(now)
        grant.begin(now)
        return grant

    def levels(self, organisation: str, limits: Mapping[str, Any], *, gateways: int, now: float) -> dict[str, Level]:
        """Return the levels for a request that does not count."""
        used = self._used.get(organisation, Used())
        return levels_of(used, limits, gateways, now)

    def _of(self, organisation: str, now: float) -> Used:
        if organisation not in self._used and len(self._used) >= MOST_KNOWN:
            self._used = {name: used for name, used in self._used.items() if not used.is_idle(now)}
        return self._used.setdefault(organisation, Used())


class Taken:
    """One request's part of its organisation's limits, until it ends."""

    def __init__(self, used: Used, limits: Mapping[str, Any], gateways: int, tokens: int) -> None:
        self._used, self._limits, self._gateways, self._tokens = used, limits, gateways, tokens
        self._has_ended = self._is_given_back = False

    def check(self, now: float) -> None:
        """Raise Exceeded if a limit is reached; of several, the one that is free again last."""
        excesses = [
            excess for excess in (self._requests(now), self._tokens_over(now), self._running()) if excess is not None
        ]
        if excesses:
            raise max(excesses, key=lambda excess: excess.seconds)

    def begin(self, now: float) -> None:
        self._used.requests.taken += 1
        self._used.tokens.taken += self._tokens
        self._used.running += 1

    def settle(self, tokens: int, now: float) -> None:
        """Replace the estimate by `tokens`, as far as they are known."""
        if rate := self._share("tokens_per_minute"):
            used_tokens = self._used.tokens.seen(rate, now)
            self._used.tokens.taken = max(0.0, used_tokens + tokens - self._tokens)
        self._tokens = tokens

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._used.running -= 1

    def give_back(self, now: float) -> None:
        """Return what was taken: the request failed through no fault of its organisation."""
        self.settle(0, now)
        if not self._is_given_back:
            self._is_given_back = True
            self._used.requests.taken = max(0.0, self._used.requests.taken - 1)

    @property
    def has_tokens(self) -> bool:
        """Return whether tokens are limited."""
        return self._share("tokens_per_minute") > 0

    def levels(self, now: float) -> dict[str, Level]:
        return levels_of(self._used, self._limits, self._gateways, now)

    def _requests(self, now: float) -> Exceeded | None:
        rate = self._share("requests_per_minute")
        seconds = self._used.requests.wait_seconds(rate, 1, now) if rate else 0.0
        return Exceeded("requests_per_minute", self._limits["requests_per_minute"], 1, seconds) if seconds else None

    def _tokens_over(self, now: float) -> Exceeded | None:
        rate = self._share("tokens_per_minute")
        seconds = self._used.tokens.wait_seconds(rate, self._tokens, now) if rate else 0.0
        if not seconds:
            return None
        return Exceeded("tokens_per_minute", self._limits["tokens_per_minute"], self._tokens, seconds)

    def _running(self) -> Exceeded | None:
        """Return the excess, if any. A share below one allows one request, otherwise no gateway would allow any."""
        share = self._share("concurrent_requests")
        if not share or self._used.running < max(1, int(share)):
            return None
        return Exceeded("concurrent_requests", self._limits["concurrent_requests"], 1, 1.0)

    def _share(self, limit: Limit) -> float:
        return share_of(self._limits, limit, self._gateways)


def levels_of(used: Used, limits: Mapping[str, Any], gateways: int, now: float) -> dict[str, Level]:
    """Return the levels of limited rates: `requests` and `tokens`."""
    levels: dict[str, Level] = {}
    rates: tuple[tuple[str, Limit, Bucket], ...] = (
        ("requests", "requests_per_minute", used.requests),
        ("tokens", "tokens_per_minute", used.tokens),
    )
    for name, limit, bucket in rates:
        if rate := share_of(limits, limit, gateways):
            consumed = bucket.seen(rate, now)
            levels[name] = Level(limits[limit], max(0, int(max(1.0, rate) - consumed + 1e-6)), consumed * MINUTE / rate)
    return levels


def share_of(limits: Mapping[str, Any], limit: Limit, gateways: int) -> float:
    """Return this gateway's share; 0: no limit."""
    return (limits.get(limit) or 0) / max(1, gateways)
