"""Decides which of several gateways probes an engine. Pure, except for the random moment within a turn.

The fleet's clock is cut into turns of equal length. In each turn one gateway probes an engine: the living gateways
rotate in the order of their names, and each engine starts with a different one. So an engine is probed once a turn,
however many gateways there are, and gateways need not communicate.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Turns:
    """The schedule of turns. `own` is this gateway, one of the sorted `gateways`."""

    seconds: float
    own: str
    gateways: tuple[str, ...]

    @classmethod
    def among(cls, living: Iterable[str], *, own: str, seconds: float) -> "Turns":
        """Return the schedule of the living gateways. It includes this gateway, listed or not."""
        return cls(seconds, own, tuple(sorted({*living, own})))

    def number(self, now: float) -> int:
        return int(now // self.seconds)

    def whose(self, engine: str, number: int) -> str:
        return self.gateways[(number + _first(engine)) % len(self.gateways)]

    def next_moment(self, engine: str, *, after: int) -> float:
        """Return when this gateway next probes the engine: at a random moment of its first turn after turn `after`. A
        regular one could always coincide with something else that happens every ten seconds.
        """
        own_index, first_turn = self.gateways.index(self.own), after + 1
        number = first_turn + (own_index - first_turn - _first(engine)) % len(self.gateways)
        return (number + random.random()) * self.seconds

    def is_near(self, moment: float, now: float) -> bool:
        """Return whether a scheduled probe can be so far ahead; if not, the clock was set back."""
        return moment <= now + (len(self.gateways) + 1) * self.seconds


def _first(engine: str) -> int:
    """Return a hash that is the same in every process, unlike Python's own."""
    return int.from_bytes(sha256(engine.encode()).digest()[:8], "big")
