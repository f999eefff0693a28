"""What counters of evictions come to: of each pair what was lost since it was last told of, in buckets of time. Pure.

Counters are an engine's since its boot, and only rise. Of each boot the highest that was told is known, and only what
is above that is counted: a report that is lost, comes twice or comes late counts nothing twice, and its losses come
with the next one. Buckets are of all agents together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from controlplane.analytics.levels_told import Lost, Pair

LEVELS: Final = (300, 3_600)  # seconds of a bucket; each loss is in one of each
NOBODY_KNOWN: Final = 0  # of namespaces that are not told apart, or not there any more


class Place(NamedTuple):
    """A counter: of a boot of an agent."""

    agent: str
    boot: str
    pair: Pair


class Bucket(NamedTuple):
    level: int
    start: int
    victim: int
    by: int
    cause: str


@dataclass(slots=True)
class Displaced:
    """`before`: counters as they are known; `now`: those that rose."""

    before: Mapping[Place, Lost] = field(default_factory=dict)
    now: dict[Place, Lost] = field(default_factory=dict)
    buckets: dict[Bucket, Lost] = field(default_factory=dict)

    def take(self, place: Place, told: Lost, *, victim: int, by: int, at: float) -> None:
        """`at`: when it was told."""
        known = self.now.get(place) or self.before.get(place) or Lost(0, 0, 0.0)
        blocks, size = max(0, told.blocks - known.blocks), max(0, told.bytes - known.bytes)
        if not blocks and not size:
            return
        self.now[place] = Lost(known.blocks + blocks, known.bytes + size, max(told.at, known.at))
        for level in LEVELS:
            bucket = Bucket(level, int(at // level) * level, victim, by, place.pair.cause)
            there = self.buckets.get(bucket, Lost(0, 0, 0.0))
            self.buckets[bucket] = Lost(there.blocks + blocks, there.bytes + size, max(there.at, told.at))
