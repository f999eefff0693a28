"""Percentiles of merged histograms, at most 2 % off, and the time hits save against misses of equal length. Pure.

All times of a bucket count as its middle, which is at most `ERROR` off any of them; times below the first bucket's end,
0.1 ms, count as that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Final

from engine_agent.contracts.usage import BUCKETS, CACHED, METRICS, PROMPT_TOKENS, Cached, Metric, bucket_milliseconds

ERROR: Final = 0.02
ENOUGH: Final = 20  # hits, and misses, of a class of lengths: fewer say nothing about their times
LENGTHS: Final = len(PROMPT_TOKENS) + 1


@dataclass(frozen=True, slots=True)
class Compared:
    """Hits and misses of prompts in one class of lengths. Times are None unless there are enough of both."""

    prompt_tokens_up_to: int | None
    hits: int
    misses: int
    hit_p50: float | None
    miss_p50: float | None

    def document(self) -> dict[str, float | None]:
        return asdict(self)


class Spread:
    """A latency histogram by code, indexed for many queries."""

    def __init__(self, times: Mapping[int, int]) -> None:
        self._by_class: dict[int, Counter[int]] = {}
        for code, count in times.items():
            code_class, bucket = divmod(code, BUCKETS)
            self._by_class.setdefault(code_class, Counter())[bucket] += count

    def count(self, metric: Metric, cached: Cached | None = None, length: int | None = None) -> int:
        return self._merged(metric, cached, length).total()

    def percentile(
        self, share: float, *, metric: Metric, cached: Cached | None = None, length: int | None = None
    ) -> float | None:
        """Return the milliseconds that this share of the times does not exceed; None without times."""
        return _percentile(self._merged(metric, cached, length), share)

    def compared(self) -> list[Compared]:
        """Return the first-token times of hits and of misses, shortest prompts first."""
        return [self._compared(length) for length in range(LENGTHS)]

    def _compared(self, length: int) -> Compared:
        hits, misses = self._merged("ttft", "hit", length), self._merged("ttft", "miss", length)
        enough = min(hits.total(), misses.total()) >= ENOUGH
        medians = [_percentile(times, 0.5) if enough else None for times in (hits, misses)]
        upper_end = PROMPT_TOKENS[length] if length < len(PROMPT_TOKENS) else None
        return Compared(upper_end, hits.total(), misses.total(), *medians)

    def _merged(self, metric: Metric, cached: Cached | None, length: int | None) -> Counter[int]:
        merged = Counter[int]()
        for code_class in _places(metric, cached, length):
            merged.update(self._by_class.get(code_class, {}))
        return merged


def percentile(
    times: Mapping[int, int],
    share: float,
    *,
    metric: Metric,
    cached: Cached | None = None,
    length: int | None = None,
) -> float | None:
    return Spread(times).percentile(share, metric=metric, cached=cached, length=length)


def like_for_like(compared: Iterable[Compared]) -> tuple[float | None, float | None]:
    """Return the time of a hit and of a miss of equal length: the medians of each length, weighted by its hits."""
    pairs = list(_known(compared))
    hits = sum(count for count, _, _ in pairs)
    if not hits:
        return None, None
    return sum(count * hit for count, hit, _ in pairs) / hits, sum(count * miss for count, _, miss in pairs) / hits


def saved_seconds(compared: Iterable[Compared]) -> float | None:
    """Return by how much hits were faster than misses of equal length, over all lengths with enough of both."""
    pairs = list(_known(compared))
    return sum(count * (miss - hit) for count, hit, miss in pairs) / 1_000 if pairs else None


def _known(compared: Iterable[Compared]) -> Iterable[tuple[int, float, float]]:
    for comparison in compared:
        if comparison.hit_p50 is not None and comparison.miss_p50 is not None:
            yield comparison.hits, comparison.hit_p50, comparison.miss_p50


def _percentile(buckets: Counter[int], share: float) -> float | None:
    rank = max(1, ceil(round(share * buckets.total(), 6)))  # as floats, 0.07 × 100 is more than 7
    for bucket, count in sorted(buckets.items()):
        rank -= count
        if rank <= 0:
            return bucket_milliseconds(bucket)
    return None


def _places(metric: Metric, cached: Cached | None, length: int | None) -> Iterable[int]:
    """Yield the classes as usage.code_of numbers them."""
    for number, name in enumerate(CACHED):
        if cached is None or name == cached:
            first = (METRICS.index(metric) * len(CACHED) + number) * LENGTHS
            yield from range(first, first + LENGTHS) if length is None else (first + length,)
