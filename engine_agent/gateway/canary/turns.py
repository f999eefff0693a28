"""Whose turn it is to probe an engine, where several gateways share that work. Pure, but for the moment within a turn.

Time is cut into turns of equal length by the fleet's clock, and of each engine every turn is one gateway's, by its
place among the names of those that live: in order, and for each engine beginning with another one. So an engine is
probed once in a turn however many gateways there are, and gateways that know of each other need not talk.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Turns:
    """`own` is this gateway, one of `gateways`, which are in order."""

    seconds: float
    own: str
    gateways: tuple[str, ...]

    @classmethod
    def among(cls, living: Iterable[str], *, own: str, seconds: float) -> "Turns":
        """Who is not named yet, or never heard of others, counts itself."""
        return cls(seconds, own, tuple(sorted({*living, own})))

    def number(self, now: float) -> int:
        """Of the turn that it is."""
        return int(now // self.seconds)

    def whose(self, engine: str, number: int) -> str:
        return self.gateways[(number + _first(engine)) % len(self.gateways)]

    def next_moment(self, engine: str, *, after: int) -> float:
        """When this gateway probes it next, in its first turn behind number `after`. Somewhere within that turn, in
        step with nothing: or what else happens every ten seconds would be seen each time.
        """
        own, behind = self.gateways.index(self.own), after + 1
        number = behind + (own - behind - _first(engine)) % len(self.gateways)
        return (number + random.random()) * self.seconds

    def is_near(self, moment: float, now: float) -> bool:
        """Whether one of its moments can be so far ahead; if not, the clock was set back."""
        return moment <= now + (len(self.gateways) + 1) * self.seconds


def _first(engine: str) -> int:
    """Not Python's own hash, which each process has otherwise."""
    return int.from_bytes(sha256(engine.encode()).digest()[:8], "big")
