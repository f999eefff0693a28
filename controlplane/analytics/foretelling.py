"""What a namespace's hit ratio and memory would be under another TTL or limit, from what its engines foretell. Pure.

An engine tells its reuse gaps as curves over a grid of TTLs: for sliding TTLs at several limits, for absolute ones
without a limit of their own. Both grow with the TTL and with the limit, so what lies between two points of the grid
lies between their values: that is how far an answer between them can be off, besides what the engines' estimate is.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

SLIDING, ABSOLUTE = "sliding", "absolute"
ESTIMATOR_ERROR: Final = 0.01  # of a ratio: what the engines' gaps are tested to, against counting everything
LIMIT_ERROR: Final = 0.02  # under a limit, where requests in flight need some of it
WHOLE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    ttl_seconds: float
    ttl_mode: str
    limit_share: float


@dataclass(frozen=True, slots=True)
class Between:
    """A value, and between which two it is sure to lie."""

    value: float
    low: float
    high: float

    @property
    def off(self) -> float:
        return max(self.high - self.value, self.value - self.low)

    def scaled(self, by: float) -> "Between":
        return Between(self.value * by, self.low * by, self.high * by)

    def __add__(self, other: "Between") -> "Between":
        return Between(self.value + other.value, self.low + other.low, self.high + other.high)


NOTHING: Final = Between(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Foretold:
    hit_ratio: float
    error: float  # of the hit ratio: by so much it may be off
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Curves:
    """What one engine tells of one namespace: lines over `ttls` by mode and limit, and of how much traffic they are."""

    prompt_tokens: int
    ttls: Sequence[float]
    hit_ratios: Mapping[str, Mapping[float, Sequence[float]]]
    resident_bytes: Mapping[str, Mapping[float, Sequence[float]]]


def curves_read(told: Mapping[str, Any]) -> Curves | None:
    """Of a report's curves those that have a point for each TTL; None where nothing is left."""
    ttls = [float(one) for one in told["ttls"]]
    order = sorted(range(len(ttls)), key=lambda place: ttls[place])
    ratios: dict[str, dict[float, list[float]]] = {}
    sizes: dict[str, dict[float, list[float]]] = {}
    for one in told["curves"]:
        share = WHOLE if one["limit_share"] is None else float(one["limit_share"])
        for lines, name, most in ((ratios, "hit_ratios", 1.0), (sizes, "resident_bytes", None)):
            lines.setdefault(one["ttl_mode"], {})[share] = _growing([one[name][place] for place in order], most)
    if not ttls or WHOLE not in ratios.get(SLIDING, {}):
        return None
    return Curves(told["prompt_tokens"], [ttls[place] for place in order], ratios, sizes)


def foretold(curves: Sequence[Curves], asked: Asked) -> Foretold | None:
    """Of all engines together, each by how much traffic it had. None without traffic."""
    tokens = sum(one.prompt_tokens for one in curves)
    if not tokens:
        return None
    ratio, size = NOTHING, NOTHING
    for one in curves:
        ratio += _ratio(one, asked).scaled(one.prompt_tokens / tokens)
        size += _size(one, asked)
    estimator = ESTIMATOR_ERROR if asked.limit_share >= WHOLE else LIMIT_ERROR
    return Foretold(ratio.value, ratio.off + estimator, round(size.value))


def ttls_of(curves: Iterable[Curves]) -> list[float]:
    """Every TTL that some engine has a point for."""
    return sorted({ttl for one in curves for ttl in one.ttls})


def _ratio(one: Curves, asked: Asked) -> Between:
    """An absolute TTL and a limit together cost no more than both alone, and no less than either."""
    sliding = one.hit_ratios[SLIDING]
    if asked.ttl_mode == SLIDING:
        return _at(sliding, one.ttls, asked)
    absolute = one.hit_ratios.get(ABSOLUTE)
    limited = _at(sliding, one.ttls, asked)
    if absolute is None:
        return Between(limited.value, 0.0, limited.high)
    alone = _at(absolute, one.ttls, _unlimited(asked))
    if asked.limit_share >= WHOLE:
        return alone
    free = _at(sliding, one.ttls, _unlimited(asked))
    high = min(alone.high, limited.high)
    low = min(high, max(0.0, alone.low - (free.high - limited.low)))
    value = alone.value * limited.value / free.value if free.value else 0.0
    return Between(min(max(value, low), high), low, high)


def _size(one: Curves, asked: Asked) -> Between:
    sliding = _at(one.resident_bytes[SLIDING], one.ttls, asked)
    if asked.ttl_mode == SLIDING or ABSOLUTE not in one.resident_bytes:
        return sliding
    alone = _at(one.resident_bytes[ABSOLUTE], one.ttls, _unlimited(asked))
    return alone if asked.limit_share >= WHOLE or alone.value <= sliding.value else sliding


def _unlimited(asked: Asked) -> Asked:
    return Asked(asked.ttl_seconds, asked.ttl_mode, WHOLE)


def _at(lines: Mapping[float, Sequence[float]], ttls: Sequence[float], asked: Asked) -> Between:
    """Between the two lines of the nearest limits; below the least one there is the limit 0, under which nothing is."""
    shares = sorted(lines)
    if asked.limit_share >= shares[-1]:
        return _on(lines[shares[-1]], ttls, asked.ttl_seconds)
    place = bisect_left(shares, asked.limit_share)
    above = _on(lines[shares[place]], ttls, asked.ttl_seconds)
    if shares[place] == asked.limit_share:
        return above
    below = _on(lines[shares[place - 1]], ttls, asked.ttl_seconds) if place else NOTHING
    least = shares[place - 1] if place else 0.0
    part = (asked.limit_share - least) / (shares[place] - least)
    value = below.value + (above.value - below.value) * part
    return Between(value, min(below.low, above.low), max(below.high, above.high))


def _on(line: Sequence[float], ttls: Sequence[float], ttl: float) -> Between:
    """TTLs lie as far apart as their logarithms. Beyond the last point nobody knows how much more there is."""
    place = bisect_left(ttls, ttl)
    if place == len(ttls):
        return Between(line[-1], line[-1], line[-1])
    if ttls[place] == ttl:
        return Between(line[place], line[place], line[place])
    above = line[place]
    if not place:
        return Between(above * ttl / ttls[0], 0.0, above)
    below, part = line[place - 1], log(ttl / ttls[place - 1]) / log(ttls[place] / ttls[place - 1])
    return Between(below + (above - below) * part, below, above)


def _growing(line: Sequence[float], most: float | None) -> list[float]:
    """Estimates may fall by a hair where what they estimate cannot."""
    found: list[float] = []
    for value in line:
        value = value if most is None else min(value, most)
        found.append(max(value, found[-1]) if found else float(value))
    return found
