"""Confidence intervals of figures, from their samples alone: the bootstrap's percentiles."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine_agent.tools.loadgen.summary import quantile

RESAMPLES = 2_000
LEVEL = 0.95

Statistic = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its interval at the confidence LEVEL."""

    value: float
    low: float
    high: float


def percentile(share: float) -> Statistic:
    return lambda samples: quantile(sorted(samples), share)


def estimate(statistic: Statistic, samples: Sequence[float], *, seed: int = 0) -> Estimate:
    random_ = random.Random(seed)
    resampled = sorted(statistic(random_.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    return Estimate(statistic(samples), *_ends(resampled))


def reduction(statistic: Statistic, ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0) -> Estimate:
    """Return by what share `ours` is below `theirs`; each side is resampled separately."""
    random_ = random.Random(seed)
    resampled = sorted(
        1 - statistic(random_.choices(ours, k=len(ours))) / statistic(random_.choices(theirs, k=len(theirs)))
        for _ in range(RESAMPLES)
    )
    return Estimate(1 - statistic(ours) / statistic(theirs), *_ends(resampled))


def _ends(resampled: Sequence[float]) -> tuple[float, float]:
    return quantile(resampled, (1 - LEVEL) / 2), quantile(resampled, (1 + LEVEL) / 2)
