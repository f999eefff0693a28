"""Measures how well two classes of times can be told apart: the area under the ROC curve, with its interval. Pure.

0.5: not at all; 1: the first class is always smaller; 0: always larger. The interval is Newcombe's: Hanley and McNeil's
variance, taken at the bound itself, so that it has a width even if the classes do not overlap at all.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NOTHING = 0.5
USUAL_Z = 1.959964  # 95 % of intervals contain the true value
WATCHING_Z = 3.290527  # 99.9 %: checks that run all day must not alert by chance
_HALVINGS = 50


@dataclass(frozen=True, slots=True)
class Interval:
    auc: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def holds_nothing(self) -> bool:
        """Return whether the interval contains 0.5, so that the classes may be the same."""
        return self.low <= NOTHING <= self.high

    @property
    def advantage(self) -> float:
        """Return the proven distance from 0.5: 0 as long as nothing is proven."""
        return max(0.0, self.low - NOTHING, NOTHING - self.high)


def auc_of(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how often a value of `first` is smaller than one of `second`; an equal pair counts half."""
    if not first or not second:
        raise ValueError(f"times of both classes are needed, found {len(first)} and {len(second)}")
    ordered, count = sorted(second), len(second)
    doubled_count = sum(2 * count - bisect_left(ordered, time) - bisect_right(ordered, time) for time in first)
    return doubled_count / (2 * len(first) * count)


def interval_of(first: Sequence[float], second: Sequence[float], *, z: float = USUAL_Z) -> Interval:
    auc, sizes = auc_of(first, second), (len(first), len(second))
    low = _bound(auc, lambda at: z * _deviation(at, *sizes))
    high = 1 - _bound(1 - auc, lambda at: z * _deviation(1 - at, *sizes))
    return Interval(auc, min(low, auc), max(high, auc))


def _bound(auc: float, allowed_deviation: Callable[[float], float]) -> float:
    """Return the least AUC from which the observed one differs no more than chance allows."""
    lower, upper = 0.0, auc
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2
        if auc - middle > allowed_deviation(middle):
            lower = middle
        else:
            upper = middle
    return upper


def _deviation(auc: float, first: int, second: int) -> float:
    adjusted_size = (first + second) / 2 - 1
    spread = 1 + adjusted_size * ((1 - auc) / (2 - auc) + auc / (1 + auc))
    return math.sqrt(max(0.0, auc * (1 - auc) * spread / (first * second)))
