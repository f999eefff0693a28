"""Sums of the agents' cumulative counters while a step bakes. Pure.

An engine's counters restart with every boot, and are added up across boots here. Counting of an agent begins at the
first values seen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine_agent.contracts.wire import TTFT_SECONDS

BUCKETS = len(TTFT_SECONDS) + 1


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of one scope, or of several together.

    `format_misses` are tokens missed because their blocks had another format. `ttft` counts the answers that were no
    slower than each of TTFT_SECONDS; its last number counts all answers.
    """

    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    format_misses: int = 0
    ttft: tuple[int, ...] = (0,) * BUCKETS

    @classmethod
    def of(cls, numbers: Sequence[int]) -> "Counts":
        requests, errors, prompt_tokens, cached_tokens, format_misses, *ttft = numbers
        return cls(requests, errors, prompt_tokens, cached_tokens, format_misses, tuple(ttft))

    @property
    def numbers(self) -> tuple[int, ...]:
        return (
            *(self.requests, self.errors, self.prompt_tokens, self.cached_tokens, self.format_misses),
            *self.ttft,
        )

    def __add__(self, other: "Counts") -> "Counts":
        return Counts.of([a + b for a, b in zip(self.numbers, other.numbers, strict=True)])

    def since(self, before: "Counts") -> "Counts":
        """Return the increase since `before`. If any counter is lower, counting has restarted."""
        increase = [a - b for a, b in zip(self.numbers, before.numbers, strict=True)]
        return self if min(increase) < 0 else Counts.of(increase)


def counts_read(counters: Mapping[str, Any]) -> Counts:
    """Read a scope's counters from a heartbeat. wire.COUNTED ensures that they are all there."""
    return Counts(
        requests=counters["requests"],
        errors=counters["errors"],
        prompt_tokens=counters["prompt_tokens"],
        cached_tokens=counters["cached_tokens"],
        format_misses=counters["missed"].get("dtype", 0),
        ttft=tuple(counters["ttft_buckets"]),
    )


@dataclass(frozen=True, slots=True)
class Watched:
    """One agent: the boot last seen, its counters then, their sum since counting began, and the misses in that sum that
    the change itself caused."""

    boot: str
    last: Counts
    sum: Counts = Counts()
    left_out: int = 0


def watched_on(previous: Watched | None, boot: str, now: Counts, *, is_cold: bool) -> Watched:
    """Add an agent's newest heartbeat. `is_cold`: blocks of another format are missed because of the change itself."""
    if previous is None:
        return Watched(boot, now)
    increase = now.since(previous.last) if boot == previous.boot else now
    return Watched(boot, now, previous.sum + increase, previous.left_out + (increase.format_misses if is_cold else 0))


@dataclass(frozen=True, slots=True)
class Side:
    """The sums of several agents: the reached ones, or the others."""

    agents: int
    counts: Counts
    left_out: int

    @property
    def requests(self) -> int:
        """Return the number of requests, never fewer than errors: a failed one may not be counted as a request."""
        return max(self.counts.requests, self.counts.errors)

    @property
    def hit_ratio(self) -> float | None:
        """Return the hit ratio without the misses that the change itself causes. None without tokens."""
        tokens = self.counts.prompt_tokens - self.left_out
        return None if tokens <= 0 else min(1.0, self.counts.cached_tokens / tokens)

    @property
    def error_ratio(self) -> float | None:
        return self.counts.errors / self.requests if self.requests else None

    @property
    def answers(self) -> int:
        return self.counts.ttft[-1]

    @property
    def ttft_p95(self) -> float | None:
        return quantile(self.counts.ttft, 0.95)


def side_of(watched: Iterable[Watched]) -> Side:
    agents = list(watched)
    return Side(len(agents), sum((agent.sum for agent in agents), Counts()), sum(agent.left_out for agent in agents))


def quantile(buckets: Sequence[int], share: float) -> float | None:
    """Return a quantile in seconds, interpolated within a bucket. Slower answers count as the last bound."""
    total = buckets[-1]
    if total <= 0:
        return None
    rank = share * total
    lower, below = 0.0, 0
    for upper, count in zip(TTFT_SECONDS, buckets, strict=False):
        if count >= rank:
            return lower + (upper - lower) * (rank - below) / (count - below)
        lower, below = float(upper), count
    return float(TTFT_SECONDS[-1])


def share_slower(buckets: Sequence[int], seconds: float) -> float:
    """Return the share of answers that took longer than that, interpolated within a bucket. 0 without answers."""
    total = buckets[-1]
    if total <= 0:
        return 0.0
    lower, below = 0.0, 0
    for upper, count in zip(TTFT_SECONDS, buckets, strict=False):
        if seconds < upper:
            return 1 - (below + (count - below) * (seconds - lower) / (upper - lower)) / total
        lower, below = float(upper), count
    return 1 - below / total


# The stored form between two sweeps: lists, because there may be a thousand of them.


def side_stored(side: Side) -> list[Any]:
    return [side.agents, [*side.counts.numbers], side.left_out]


def side_read(stored: Sequence[Any]) -> Side:
    """Read stored sums, empty if another version counted other things."""
    agents, counts, left_out = stored
    return Side(agents, Counts.of(counts), left_out) if len(counts) == len(Counts().numbers) else side_of([])


def watched_stored(watched: Watched) -> list[Any]:
    return [watched.boot, [*watched.last.numbers], [*watched.sum.numbers], watched.left_out]


def watched_read(stored: Sequence[Any]) -> Watched | None:
    """Read an agent's stored counters. None if another version counted other things: then counting restarts."""
    if len(stored) != 4:
        return None
    boot, last, total, left_out = stored
    if not len(last) == len(total) == len(Counts().numbers):
        return None
    return Watched(boot, Counts.of(last), Counts.of(total), left_out)
