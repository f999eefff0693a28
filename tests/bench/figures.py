"""A figure: its samples, its sizes and the target that judges it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tests.bench.stats import Statistics, statistics_of

Parameters = Mapping[str, str | int | float | bool | None]
Judged = Literal["median", "min", "max", "p5", "p25", "p75", "p95", "p99"]


@dataclass(frozen=True, slots=True)
class Target:
    """What one statistic of a figure should reach: `Target("<=", 2.0)`, `Target("==", 37.4, tolerance=0.5)`."""

    comparison: Literal["<=", "<", ">=", ">", "=="]
    bound: float
    of: Judged = "median"
    tolerance: float = 0.0  # only "==" has one

    def __post_init__(self) -> None:
        if self.comparison not in ("<=", "<", ">=", ">", "=="):
            raise ValueError(f"comparison is one of <= < >= > ==, found {self.comparison!r}")
        if self.tolerance and self.comparison != "==":
            raise ValueError(f"tolerance goes with ==, found {self.comparison!r}")

    def is_met(self, value: float) -> bool:
        match self.comparison:
            case "<=":
                return value <= self.bound
            case "<":
                return value < self.bound
            case ">=":
                return value >= self.bound
            case ">":
                return value > self.bound
            case "==":
                return abs(value - self.bound) <= self.tolerance

    def shortfall(self, value: float) -> float:
        """How far `value` is on the wrong side, in the figure's unit; 0 when met."""
        return 0.0 if self.is_met(value) else abs(value - self.bound) - self.tolerance


@dataclass(frozen=True, slots=True)
class Series:
    """One side of a figure. A run that is kept for long has no samples any more, and still its statistics."""

    name: str
    unit: str
    samples: tuple[float, ...]
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    kind: Literal["measure", "compare", "record"]
    ours: Series
    seconds: float
    parameters: Parameters
    target: Target | None = None
    theirs: Series | None = None
    ratio: Series | None = None

    @property
    def judged(self) -> Series:
        """What the target speaks of: the ratio of a comparison, otherwise our own samples."""
        return self.ratio or self.ours

    @property
    def judged_value(self) -> float:
        of: Judged = self.target.of if self.target else "median"
        return float(getattr(self.judged.statistics, of))

    @property
    def is_met(self) -> bool | None:
        return self.target.is_met(self.judged_value) if self.target else None


def series_of(name: str, unit: str, samples: Iterable[float]) -> Series:
    values = tuple(float(sample) for sample in samples)
    if not values:
        raise ValueError(f"{name}: no values")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"{name}: a sample is {value}")
    return Series(name, unit, values, statistics_of(values))


def ratio_of(name: str, ours: Series, theirs: Series) -> Series:
    if 0.0 in theirs.samples:
        raise ValueError(f"{name}: {theirs.name} measured 0 {theirs.unit}, so there is no ratio")
    return series_of("ratio", "×", (a / b for a, b in zip(ours.samples, theirs.samples, strict=True)))
