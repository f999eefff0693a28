"""Sums of evictions: what each pair of namespaces lost since its last report, in buckets of time. Pure.

Counters are an engine's since its boot, and only rise. The highest reported value of each boot is stored, and only what
exceeds it is counted. So a report that is lost, repeated or late counts nothing twice, and its losses come with the
next one. Buckets cover all agents together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from controlplane.analytics.levels_told import Lost, Pair

LEVELS: Final = (300, 3_600)  # seconds of a bucket; each loss is in one of each level
NOBODY_KNOWN: Final = 0  # namespaces that engines do not distinguish, or that are gone


class Place(NamedTuple):
    """The identity of a counter: an agent, its boot, and a pair of namespaces."""

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
    """Eviction counters and new losses. `before`: the stored counters; `now`: those that rose."""

    before: Mapping[Place, Lost] = field(default_factory=dict)
    now: dict[Place, Lost] = field(default_factory=dict)
    buckets: dict[Bucket, Lost] = field(default_factory=dict)

    def take(self, counter_key: Place, losses: Lost, *, victim: int, by: int, at: float) -> None:
        """Add the increase of a counter. `at`: the time of the report."""
        counted = self.now.get(counter_key) or self.before.get(counter_key) or Lost(0, 0, 0.0)
        blocks, size = max(0, losses.blocks - counted.blocks), max(0, losses.bytes - counted.bytes)
        if not blocks and not size:
            return
        self.now[counter_key] = Lost(counted.blocks + blocks, counted.bytes + size, max(losses.at, counted.at))
        for level in LEVELS:
            bucket = Bucket(level, int(at // level) * level, victim, by, counter_key.pair.cause)
            previous = self.buckets.get(bucket, Lost(0, 0, 0.0))
            self.buckets[bucket] = Lost(previous.blocks + blocks, previous.bytes + size, max(previous.at, losses.at))
