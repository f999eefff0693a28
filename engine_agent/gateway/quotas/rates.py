"""How much of its limits an organisation has used here: requests and tokens a minute, requests at once. Pure.

A rate is a bucket of one minute's worth that fills as time goes by: whoever has rested may ask for all of it at once.
Several gateways share each limit evenly, and know of each other only how many they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MINUTE = 60.0
MOST_KNOWN = 20_000  # organisations of which something may be remembered
Limit = Literal["requests_per_minute", "tokens_per_minute", "concurrent_requests"]


class Exceeded(Exception):
    """What is asked for is more than is left now. Nothing was taken."""

    def __init__(self, limit: Limit, most: int, wanted: int, seconds: float) -> None:
        self.limit, self.most, self.wanted, self.seconds = limit, most, wanted, seconds
        super().__init__(f"{limit}: {most}")


@dataclass(frozen=True, slots=True)
class Level:
    """How a rate stands: of `limit` a minute so much is left here, and all of it again after `reset_seconds`."""

    limit: int
    remaining: int
    reset_seconds: float


@dataclass(slots=True)
class Bucket:
    """By what was taken of it, so that its size may change meanwhile."""

    taken: float = 0.0
    at: float = 0.0

    def seen(self, rate: float, now: float) -> float:
        """What of it is still taken. A clock that was set back gives and takes nothing."""
        self.taken = max(0.0, self.taken - max(0.0, now - self.at) * rate / MINUTE)
        self.at = now
        return self.taken

    def wait_seconds(self, rate: float, wanted: float, now: float) -> float:
        """Until so much may be taken. More than it ever holds may be when it is full, or it could never be: it then
        takes longer to fill up.
        """
        size = max(1.0, rate)
        over = self.seen(rate, now) + min(wanted, size) - size
        return 0.0 if over <= 1e-9 else over * MINUTE / rate


@dataclass(slots=True)
class Used:
    """Of one organisation."""

    requests: Bucket = field(default_factory=Bucket)
    tokens: Bucket = field(default_factory=Bucket)
    running: int = 0

    def is_idle(self, now: float) -> bool:
        """Of buckets: those that nobody has touched for long are full, whatever their rate is, or as good as."""
        return not self.running and now - max(self.requests.at, self.tokens.at) > 2 * MINUTE


class Quotas:
    """What every organisation has used at this gateway."""

    def __init__(self) -> None:
        self._used: dict[str, Used] = {}

    def take(
        self, organisation: str, limits: Mapping[str, Any], *, tokens: int, gateways: int, now: float
    ) -> "Taken | None":
        """All that one request needs, or Exceeded and nothing. None: nothing is limited."""
        if not limits:
            return None
        used = self._of(organisation, now)
        taken = Taken(used, limits, gateways, tokens)
        taken.check(now)
        taken.begin(now)
        return taken

    def levels(self, organisation: str, limits: Mapping[str, Any], *, gateways: int, now: float) -> dict[str, Level]:
        """Of those who ask for nothing that is counted."""
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
        """Raises Exceeded, of the limit that is free again last."""
        found = [one for one in (self._requests(now), self._tokens_over(now), self._running()) if one is not None]
        if found:
            raise max(found, key=lambda one: one.seconds)

    def begin(self, now: float) -> None:
        self._used.requests.taken += 1
        self._used.tokens.taken += self._tokens
        self._used.running += 1

    def settle(self, tokens: int, now: float) -> None:
        """So many were needed, as far as it is known."""
        if rate := self._share("tokens_per_minute"):
            held = self._used.tokens.seen(rate, now)
            self._used.tokens.taken = max(0.0, held + tokens - self._tokens)
        self._tokens = tokens

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._used.running -= 1

    def give_back(self, now: float) -> None:
        """It came to nothing, which was not its organisation's doing."""
        self.settle(0, now)
        if not self._is_given_back:
            self._is_given_back = True
            self._used.requests.taken = max(0.0, self._used.requests.taken - 1)

    @property
    def has_tokens(self) -> bool:
        """Whether it matters how many there are."""
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
        """The last part of a limit that cannot be divided is everybody's: else it would be nobody's."""
        share = self._share("concurrent_requests")
        if not share or self._used.running < max(1, int(share)):
            return None
        return Exceeded("concurrent_requests", self._limits["concurrent_requests"], 1, 1.0)

    def _share(self, limit: Limit) -> float:
        return share_of(self._limits, limit, self._gateways)


def levels_of(used: Used, limits: Mapping[str, Any], gateways: int, now: float) -> dict[str, Level]:
    """By what is counted a minute: `requests`, `tokens`; only what is limited."""
    found: dict[str, Level] = {}
    rates: tuple[tuple[str, Limit, Bucket], ...] = (
        ("requests", "requests_per_minute", used.requests),
        ("tokens", "tokens_per_minute", used.tokens),
    )
    for name, limit, bucket in rates:
        if rate := share_of(limits, limit, gateways):
            taken = bucket.seen(rate, now)
            found[name] = Level(limits[limit], max(0, int(max(1.0, rate) - taken + 1e-6)), taken * MINUTE / rate)
    return found


def share_of(limits: Mapping[str, Any], limit: Limit, gateways: int) -> float:
    """0: no limit."""
    return (limits.get(limit) or 0) / max(1, gateways)
