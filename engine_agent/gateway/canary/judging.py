"""Judges a round of probes. Pure.

A round asks one engine four times for one token: twice for one tenant with the same new prompt, then for another tenant
with that prompt and with a fresh one, in either order.
"""

from dataclasses import dataclass
from typing import Literal, get_args

LEAST_TOKENS = 128  # the shortest prompt that can be judged: eight blocks
Outcome = Literal["isolated", "leaked", "unkept", "failed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer: the token counts in its headers, and how long it took."""

    prompt_tokens: int
    cached_tokens: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Round:
    """`fresh`, `again`: one tenant's answers. `foreign`: the other's to the same prompt; `unseen`: to a new one."""

    fresh: Seen
    again: Seen
    foreign: Seen
    unseen: Seen


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    why: str = ""
    pair: tuple[float, float] | None = None  # milliseconds of `foreign` and `unseen`


def judge(seen: Round) -> Verdict:
    """Judge a round. `unkept`: nothing was cached (memory was short, or caching is off), so nothing is proven."""
    if seen.foreign.cached_tokens:
        return _leaked(seen.foreign, "of another organisation's prompt")
    for answer in (seen.fresh, seen.unseen):
        if answer.cached_tokens:
            return _leaked(answer, "of a prompt that nobody had sent")
    if min(answer.prompt_tokens for answer in (seen.fresh, seen.unseen)) < LEAST_TOKENS:
        return Verdict("failed", f"a prompt had {seen.fresh.prompt_tokens:,} tokens, and {LEAST_TOKENS} are needed")
    if not seen.again.cached_tokens:
        return Verdict("unkept", "the same tenant's second request found nothing cached")
    return Verdict("isolated", pair=(seen.foreign.milliseconds, seen.unseen.milliseconds))


def _leaked(answer: Seen, origin: str) -> Verdict:
    return Verdict("leaked", f"{answer.cached_tokens:,} of {answer.prompt_tokens:,} tokens {origin} were cached")
