"""What a round of probes says. Pure.

A round asks one engine four times for one token: twice for one tenant with the same prompt that nobody has sent before,
then for another tenant with that prompt and with a fresh one, in either order.
"""

from dataclasses import dataclass
from typing import Literal, get_args

LEAST_TOKENS = 128  # of a prompt: eight blocks
Outcome = Literal["isolated", "leaked", "unkept", "failed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer: what its headers said, and how long it took."""

    prompt_tokens: int
    cached_tokens: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Round:
    """`fresh`, `again`: the one tenant's. `foreign`: the other's, of the same prompt; `unseen`: of one all its own."""

    fresh: Seen
    again: Seen
    foreign: Seen
    unseen: Seen


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    why: str = ""
    pair: tuple[float, float] | None = None  # times of the other tenant: cached elsewhere, cached nowhere


def judge(seen: Round) -> Verdict:
    """`unkept`: nothing was cached for anybody, so that nothing is proven: memory was short, or caching is off."""
    if seen.foreign.cached_tokens:
        return _leaked(seen.foreign, "of another organisation's prompt")
    for one in (seen.fresh, seen.unseen):
        if one.cached_tokens:
            return _leaked(one, "of a prompt that nobody had sent")
    if min(one.prompt_tokens for one in (seen.fresh, seen.unseen)) < LEAST_TOKENS:
        return Verdict("failed", f"a prompt had {seen.fresh.prompt_tokens:,} tokens, and {LEAST_TOKENS} are needed")
    if not seen.again.cached_tokens:
        return Verdict("unkept", "the same tenant's second request found nothing cached")
    return Verdict("isolated", pair=(seen.foreign.milliseconds, seen.unseen.milliseconds))


def _leaked(seen: Seen, whose: str) -> Verdict:
    return Verdict("leaked", f"{seen.cached_tokens:,} of {seen.prompt_tokens:,} tokens {whose} were cached")
