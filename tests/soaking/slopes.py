"""Whether a process keeps growing: the slope of its memory after a warm-up. Speed is not judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import NamedTuple

WARM_SHARE = 0.4  # of the time, in which caches, pools and arenas fill
LEAST_SAMPLES = 10  # after the warm-up
SECONDS_PER_HOUR = 3_600


class Sample(NamedTuple):
    seconds: float
    megabytes: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one process. `warm` and `end` are medians of the first and the last fifth after the warm-up."""

    slope_mb_per_hour: float
    most_mb_per_hour: float
    start_mb: float
    warm_mb: float
    end_mb: float
    peak_mb: float

    @property
    def is_growing(self) -> bool:
        return self.slope_mb_per_hour > self.most_mb_per_hour


def verdict(samples: Sequence[Sample], *, most_mb_per_hour: float, peak_mb: float = 0.0) -> Verdict:
    """`peak_mb`: the highest that the system saw, which may lie between two samples.

    Raises ValueError where there are too few samples to judge by.
    """
    begins = samples[0].seconds + WARM_SHARE * (samples[-1].seconds - samples[0].seconds) if samples else 0.0
    warm = [sample for sample in samples if sample.seconds >= begins]
    if len(warm) < LEAST_SAMPLES:
        raise ValueError(f"{len(warm)} samples after the warm-up: a slope needs {LEAST_SAMPLES}. Run it for longer")
    fifth = max(1, len(warm) // 5)
    return Verdict(
        slope_mb_per_hour=theil_sen(warm) * SECONDS_PER_HOUR,
        most_mb_per_hour=most_mb_per_hour,
        start_mb=samples[0].megabytes,
        warm_mb=median(sample.megabytes for sample in warm[:fifth]),
        end_mb=median(sample.megabytes for sample in warm[-fifth:]),
        peak_mb=max(peak_mb, *(sample.megabytes for sample in samples)),
    )


def theil_sen(samples: Sequence[Sample]) -> float:
    """The median slope of all pairs, in megabytes per second: a single peak or step does not move it."""
    pairs = combinations(samples, 2)
    return median(
        (later.megabytes - earlier.megabytes) / (later.seconds - earlier.seconds)
        for earlier, later in pairs
        if later.seconds > earlier.seconds
    )
