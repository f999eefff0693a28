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


def curves_read(report: Mapping[str, Any]) -> Curves | None:
    """Return the curves of a report; None if it has no TTLs, or no sliding curve without a limit."""
    ttls = [float(ttl) for ttl in report["ttls"]]
    order = sorted(range(len(ttls)), key=lambda index: ttls[index])
    ratios: dict[str, dict[float, list[float]]] = {}
    sizes: dict[str, dict[float, list[float]]] = {}
    for curve in report["curves"]:
        share = WHOLE if curve["limit_share"] is None else float(curve["limit_share"])
        for lines, name, most in ((ratios, "hit_ratios", 1.0), (sizes, "resident_bytes", None)):
            lines.setdefault(curve["ttl_mode"], {})[share] = _growing([curve[name][index] for index in order], most)
    if not ttls or WHOLE not in ratios.get(SLIDING, {}):
        return None
    return Curves(report["prompt_tokens"], [ttls[index] for index in order], ratios, sizes)


def foretold(curves: Sequence[Curves], policy: Asked) -> Foretold | None:
    """Return the forecast for all engines together, weighted by their traffic. None without traffic."""
    tokens = sum(engine_curves.prompt_tokens for engine_curves in curves)
    if not tokens:
        return None
    ratio, size = NOTHING, NOTHING
    for engine_curves in curves:
        ratio += _ratio(engine_curves, policy).scaled(engine_curves.prompt_tokens / tokens)
        size += _size(engine_curves, policy)
    estimator = ESTIMATOR_ERROR if policy.limit_share >= WHOLE else LIMIT_ERROR
    return Foretold(ratio.value, ratio.off + estimator, round(size.value))


def ttls_of(curves: Iterable[Curves]) -> list[float]:
    """Return every TTL for which some engine has a point."""
    return sorted({ttl for engine_curves in curves for ttl in engine_curves.ttls})


def _ratio(curves: Curves, policy: Asked) -> Between:
    """Return the hit ratio. An absolute TTL under a limit costs at most both effects added, and at least the larger."""
    sliding_lines = curves.hit_ratios[SLIDING]
    if policy.ttl_mode == SLIDING:
        return _at(sliding_lines, curves.ttls, policy)
    absolute_lines = curves.hit_ratios.get(ABSOLUTE)
    sliding_limited = _at(sliding_lines, curves.ttls, policy)
    if absolute_lines is None:
        return Between(sliding_limited.value, 0.0, sliding_limited.high)
    absolute_unlimited = _at(absolute_lines, curves.ttls, _unlimited(policy))
    if policy.limit_share >= WHOLE:
        return absolute_unlimited
    sliding_unlimited = _at(sliding_lines, curves.ttls, _unlimited(policy))
    high = min(absolute_unlimited.high, sliding_limited.high)
    low = min(high, max(0.0, absolute_unlimited.low - (sliding_unlimited.high - sliding_limited.low)))
    value = (
        absolute_unlimited.value * sliding_limited.value / sliding_unlimited.value if sliding_unlimited.value else 0.0
    )
    return Between(min(max(value, low), high), low, high)


def _size(curves: Curves, policy: Asked) -> Between:
    sliding = _at(curves.resident_bytes[SLIDING], curves.ttls, policy)
    if policy.ttl_mode == SLIDING or ABSOLUTE not in curves.resident_bytes:
        return sliding
    absolute = _at(curves.resident_bytes[ABSOLUTE], curves.ttls, _unlimited(policy))
    return absolute if policy.limit_share >= WHOLE or absolute.value <= sliding.value else sliding


def _unlimited(policy: Asked) -> Asked:
    return Asked(policy.ttl_seconds, policy.ttl_mode, WHOLE)


def _at(lines: Mapping[float, Sequence[float]], ttls: Sequence[float], policy: Asked) -> Between:
    """Interpolate between the lines of the two nearest limits. Below the smallest limit, the lower line is 0."""
    shares = sorted(lines)
    if policy.limit_share >= shares[-1]:
        return _on(lines[shares[-1]], ttls, policy.ttl_seconds)
    index = bisect_left(shares, policy.limit_share)
    above = _on(lines[shares[index]], ttls, policy.ttl_seconds)
    if shares[index] == policy.limit_share:
        return above
    below = _on(lines[shares[index - 1]], ttls, policy.ttl_seconds) if index else NOTHING
    least = shares[index - 1] if index else 0.0
    part = (policy.limit_share - least) / (shares[index] - least)
    value = below.value + (above.value - below.value) * part
    return Between(value, min(below.low, above.low), max(below.high, above.high))


def _on(line: Sequence[float], ttls: Sequence[float], ttl: float) -> Between:
    """Interpolate on the logarithm of the TTL. Beyond the last point, growth is unknown, so use its value."""
    index = bisect_left(ttls, ttl)
    if index == len(ttls):
        return Between(line[-1], line[-1], line[-1])
    if ttls[index] == ttl:
        return Between(line[index], line[index], line[index])
    above = line[index]
    if not index:
        return Between(above * ttl / ttls[0], 0.0, above)
    below, part = line[index - 1], log(ttl / ttls[index - 1]) / log(ttls[index] / ttls[index - 1])
    return Between(below + (above - below) * part, below, above)


def _growing(line: Sequence[float], most: float | None) -> list[float]:
    """Make the line non-decreasing. Estimates may fall slightly where the real values cannot."""
    growing: list[float] = []
    for point in line:
        point = point if most is None else min(point, most)
        growing.append(max(point, growing[-1]) if growing else float(point))
    return growing
