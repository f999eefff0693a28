"""Summarise outcomes: percentiles, throughput, tokens from cache, errors by kind."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine_agent.tools.loadgen.outcome import Outcome

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of `n` values, in their unit."""

    n: int
    mean: float
    least: float
    most: float
    percentiles: dict[int, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of a run.

    `seconds` is from the first request to the last answer. Throughput counts answered requests only.
    """

    requests: int
    answered: int
    seconds: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None  # None: not reported
    contradictions: int  # answers whose header and usage differ
    errors: dict[str, int]
    examples: dict[str, str]  # one message for each kind of error
    miss_reasons: dict[str, int]
    ttft: Spread | None
    tpot: Spread | None
    gaps: Spread | None
    whole: Spread | None
    late: Spread | None
    ttft_of_hits: Spread | None
    ttft_of_misses: Spread | None

    @property
    def requests_per_second(self) -> float:
        return self.answered / self.seconds if self.seconds else 0.0

    @property
    def output_tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        return (self.prompt_tokens + self.output_tokens) / self.seconds if self.seconds else 0.0

    @property
    def hit_ratio(self) -> float | None:
        return None if self.cached_tokens is None or not self.prompt_tokens else self.cached_tokens / self.prompt_tokens


def summary_of(outcomes: Sequence[Outcome]) -> Summary:
    answered = [outcome for outcome in outcomes if outcome.is_answered]
    cached = [outcome.cached_tokens for outcome in answered if outcome.cached_tokens is not None]
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    return Summary(
        requests=len(outcomes),
        answered=len(answered),
        seconds=_seconds(outcomes),
        prompt_tokens=sum(outcome.prompt_tokens for outcome in answered),
        output_tokens=sum(outcome.output_tokens for outcome in answered),
        cached_tokens=sum(cached) if cached else None,
        contradictions=sum(outcome.is_contradictory for outcome in answered),
        errors=dict(Counter(outcome.error or "" for outcome in failed).most_common()),
        examples={outcome.error or "": outcome.detail for outcome in reversed(failed)},
        miss_reasons=dict(Counter(outcome.miss_reason for outcome in answered if outcome.miss_reason).most_common()),
        ttft=spread_of(outcome.ttft_seconds for outcome in answered),
        tpot=spread_of(outcome.tpot_seconds for outcome in answered),
        gaps=spread_of(gap for outcome in answered for gap in outcome.gaps_seconds),
        whole=spread_of(outcome.seconds for outcome in answered),
        late=spread_of(outcome.late_seconds for outcome in outcomes),
        ttft_of_hits=spread_of(outcome.ttft_seconds for outcome in answered if outcome.cached_tokens),
        ttft_of_misses=spread_of(outcome.ttft_seconds for outcome in answered if outcome.cached_tokens == 0),
    )


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Return statistics of the values that are not None, or None without any."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    percentiles = {percent: quantile(ordered, percent / 100) for percent in PERCENTILES}
    return Spread(len(ordered), math.fsum(ordered) / len(ordered), ordered[0], ordered[-1], percentiles)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation between closest ranks, numpy's default."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _seconds(outcomes: Sequence[Outcome]) -> float:
    if not outcomes:
        return 0.0
    return max(outcome.sent_seconds + outcome.seconds for outcome in outcomes) - min(
        outcome.sent_seconds for outcome in outcomes
    )
