"""Forecasts of a namespace's hit ratio and memory under another TTL or limit, from its engines' curves. Pure.

An engine reports its reuse gaps as curves over a grid of TTLs: for sliding TTLs at several limits, for absolute TTLs
without a limit. Hit ratio and memory grow with the TTL and with the limit, so a value between two grid points lies
between their values. This bounds the error of interpolation; the engines' own estimation error is added.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

SLIDING, ABSOLUTE = "sliding", "absolute"
ESTIMATOR_ERROR: Final = 0.01  # of a ratio: tests hold the engines' gaps to this, against exact counts
LIMIT_ERROR: Final = 0.02  # under a limit, part of which requests in flight use
WHOLE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    ttl_seconds: float
    ttl_mode: str
    limit_share: float


@dataclass(frozen=True, slots=True)
class Between:
    """A value, and the bounds within which it surely lies."""

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
    error: float  # how far the hit ratio may be off
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Curves:
    """One engine's curves of one namespace: lines over `ttls` by mode and limit, and the traffic they are based on."""

    prompt_tokens: int
    ttls: Sequence[float]
    hit_ratios: Mapping[str, Mapping[float, Sequence[float]]]
    resident_bytes: Mapping[str, Mapping[float, Sequence[float]]]


def curves_read(told: Mapping[str, Any]) -> Curves | None:
    """Return the curves of a report; None if it has no TTLs, or no sliding curve without a limit."""
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
    """Return the forecast for all engines together, weighted by their traffic. None without traffic."""
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
    """Return every TTL for which some engine has a point."""
    return sorted({ttl for one in curves for ttl in one.ttls})


def _ratio(one: Curves, asked: Asked) -> Between:
    """Return the hit ratio. An absolute TTL under a limit costs at most both effects added, and at least the larger."""
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
    """Interpolate between the lines of the two nearest limits. Below the smallest limit, the lower line is 0."""
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
    """Interpolate on the logarithm of the TTL. Beyond the last point, growth is unknown, so use its value."""
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
    """Make the line non-decreasing. Estimates may fall slightly where the real values cannot."""
    found: list[float] = []
    for value in line:
        value = value if most is None else min(value, most)
        found.append(max(value, found[-1]) if found else float(value))
    return found
