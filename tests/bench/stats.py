"""What is said about samples: median, quantiles, spread."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    n: int
    median: float
    min: float
    p5: float
    p25: float
    p75: float
    p95: float
    p99: float
    max: float
    spread_percent: float | None


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted samples lie; see METHODS["quantiles"]."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def statistics_of(samples: Sequence[float]) -> Statistics:
    ordered = sorted(samples)
    p5, p25, median, p75, p95, p99 = (quantile(ordered, share) for share in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99))
    # One sample has no spread, and calling it 0 % would praise the least careful measurement.
    spread = (p75 - p25) / abs(median) * 100 if len(ordered) > 1 and median else None
    return Statistics(len(ordered), median, ordered[0], p5, p25, p75, p95, p99, ordered[-1], spread)
