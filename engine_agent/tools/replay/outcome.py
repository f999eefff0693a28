"""The counts of a replay: tokens by namespace and reason, requests that waited or never fitted, memory over time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine_agent.tools.replay.policies import Setup

TAIL, REFUSED = "tail", "refused"  # in addition to the manager's own miss reasons


@dataclass(slots=True)
class Tally:
    """Counts of requests and tokens. Missed full blocks count under the first one's reason.

    The rest is `tail`: tokens of no full block, or the last token.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    missed_tokens: Counter[str] = field(default_factory=Counter)
    refused_requests: int = 0
    waited_requests: int = 0
    longest_wait_seconds: float = 0.0
    preemptions: int = 0

    @property
    def hit_ratio(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def admitted(self, prompt_tokens: int, matchable_tokens: int, cached_tokens: int, reason: str) -> None:
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        if missed := matchable_tokens - cached_tokens:
            self.missed_tokens[reason] += missed
        self.missed_tokens[TAIL] += prompt_tokens - matchable_tokens

    def refused(self, prompt_tokens: int) -> None:
        """Count a refused request. It would have run without a cache, so its tokens count as missed."""
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.refused_requests += 1
        self.missed_tokens[REFUSED] += prompt_tokens

    def waited(self, seconds: float) -> None:
        self.waited_requests += 1
        self.longest_wait_seconds = max(self.longest_wait_seconds, seconds)


@dataclass(frozen=True, slots=True)
class Moment:
    """The memory in use right after an allocation."""

    at_seconds: float
    resident_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    setup: Setup
    tallies: dict[str, Tally]
    moments: list[Moment]
    replay_seconds: float

    @property
    def total(self) -> Tally:
        return _sum(self.tallies.values())

    @property
    def peak_resident_tokens(self) -> int:
        return max((moment.resident_tokens for moment in self.moments), default=0)

    def thinned(self, most: int) -> list[Moment]:
        """Return at most `most` moments spread over the trace: in each interval the one with most memory in use."""
        if len(self.moments) <= most:
            return self.moments
        began = self.moments[0].at_seconds
        stretch = (self.moments[-1].at_seconds - began) / (most - 1) or 1.0
        fullest: dict[int, Moment] = {}
        for moment in self.moments:
            index = int((moment.at_seconds - began) / stretch)
            if index not in fullest or moment.resident_tokens > fullest[index].resident_tokens:
                fullest[index] = moment
        return list(fullest.values())


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.requests += tally.requests
        total.prompt_tokens += tally.prompt_tokens
        total.cached_tokens += tally.cached_tokens
        total.missed_tokens.update(tally.missed_tokens)
        total.refused_requests += tally.refused_requests
        total.waited_requests += tally.waited_requests
        total.longest_wait_seconds = max(total.longest_wait_seconds, tally.longest_wait_seconds)
        total.preemptions += tally.preemptions
    return total
