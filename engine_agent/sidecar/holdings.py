"""Choose what a `levels` report contains besides namespaces: a limited number of entries, most important first.

Counters of evictions only rise, so a later report can carry what has no room in this one, and nothing is lost. Each
report repeats some unchanged counters, least recently reported first, so that a reader that missed a report catches up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_PAIRS = 512  # of a report: those that lost most since they were last reported
MOST_AGAIN = 64  # of those, which have not changed
MOST_FORMATS = 1_000  # namespaces: those with the most cached bytes
MOST_PINS = 256  # pins that are not fully cached first, then those with the most cached bytes
MOST_PROBLEM_CHARACTERS = 160
Pair = tuple[str, str, str]  # victim, by, cause


@dataclass(frozen=True, slots=True)
class PairsTold:
    """The evictions last reported for one boot, by pair, least recently reported first."""

    boot: str = ""
    blocks: Mapping[Pair, int] = field(default_factory=dict)

    def of(self, boot: str) -> "PairsTold":
        return self if boot == self.boot else PairsTold(boot)

    def due(self, evictions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        changed = [eviction for eviction in evictions if eviction["blocks"] != self.blocks.get(_pair(eviction))]
        changed.sort(key=lambda eviction: self.blocks.get(_pair(eviction), 0) - eviction["blocks"])
        by_pair = {
            _pair(eviction): eviction
            for eviction in evictions
            if eviction["blocks"] == self.blocks.get(_pair(eviction))
        }
        repeated = [by_pair[pair] for pair in self.blocks if pair in by_pair]
        return [*changed[:MOST_PAIRS], *repeated[: min(MOST_AGAIN, max(0, MOST_PAIRS - len(changed)))]]

    def after(self, evictions: Sequence[Mapping[str, Any]]) -> "PairsTold":
        blocks_by_pair = {_pair(eviction): eviction["blocks"] for eviction in evictions}
        return PairsTold(
            self.boot, {pair: old for pair, old in self.blocks.items() if pair not in blocks_by_pair} | blocks_by_pair
        )


def formats_most(formats: Mapping[str, Mapping[str, int]], named: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    """Return the KV formats of those of the report's namespaces with the most cached bytes."""
    cached_names = [name for name in named if formats.get(name)]
    largest_names = sorted(cached_names, key=lambda name: -sum(formats[name].values()))[:MOST_FORMATS]
    return {name: formats[name] for name in largest_names}


def pins_most(pins: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    selected = sorted(pins, key=lambda pin: (is_held(pin), -pin["resident_bytes"]))[:MOST_PINS]
    return [{**pin, "problem": pin["problem"][:MOST_PROBLEM_CHARACTERS]} for pin in selected]


def is_held(pin: Mapping[str, Any]) -> bool:
    """Return whether the pin is active and all its tokens are cached."""
    return bool(pin["state"] == "active" and pin["resident_tokens"] == pin["wanted_tokens"])


def _pair(eviction: Mapping[str, Any]) -> Pair:
    return eviction["victim"], eviction["by"], eviction["cause"]
