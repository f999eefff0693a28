"""Decide whether agents with a new policy do worse than agents without it, and by which numbers. Pure.

Worse means beyond the bound and beyond chance: equal sides differ now and then, more often with few requests, and are
compared every two seconds. A difference that may be chance neither rolls back nor counts as evidence to advance.
"""

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Literal

from controlplane.rollouts.evidence import Side, share_slower
from controlplane.rollouts.spec import Guards

Verdict = Literal["kept", "breached", "too little"]
SIGMAS = 3.0  # standard errors between two sides from which the difference is not chance
SLOWEST = 0.05  # the share of answers that a p95 leaves out


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one guard: both sides' values, how far apart they may be, and the verdict."""

    guard: str
    changed: float | None
    unchanged: float | None
    bound: float
    verdict: Verdict
    words: str

    def stored(self) -> dict[str, Any]:
        return asdict(self)


def judge(guards: Guards, changed: Side, unchanged: Side) -> tuple[Finding, ...]:
    """Evaluate every guard that is set. With fewer than `min_requests` on either side, none decides."""
    findings = []
    if guards.error_ratio is not None:
        findings.append(_errors(guards, guards.error_ratio, changed, unchanged))
    if guards.hit_ratio_drop is not None:
        findings.append(_hits(guards, guards.hit_ratio_drop, changed, unchanged))
    if guards.ttft_p95_rise is not None:
        findings.append(_first_tokens(guards, guards.ttft_p95_rise, changed, unchanged))
    return tuple(findings)


def _errors(guards: Guards, bound: float, changed: Side, unchanged: Side) -> Finding:
    new, old = changed.error_ratio, unchanged.error_ratio
    if new is None or old is None or _is_little(guards, changed.requests, unchanged.requests):
        return _too_little("error_ratio", new, old, bound, _how_many(guards, changed.requests, unchanged.requests))
    explanation = f"{new:.1%} of {changed.requests} requests failed, {old:.1%} of {unchanged.requests} elsewhere"
    explanation = f"{explanation}; {bound:.1%} more is the most"
    if new - old <= bound:
        return Finding("error_ratio", new, old, bound, "kept", explanation)
    is_chance = _is_chance(new, changed.requests, old, unchanged.requests)
    return _worse("error_ratio", new, old, bound, explanation, is_chance=is_chance)


def _hits(guards: Guards, bound: float, changed: Side, unchanged: Side) -> Finding:
    new, old = changed.hit_ratio, unchanged.hit_ratio
    if _is_little(guards, changed.requests, unchanged.requests):
        return _too_little("hit_ratio_drop", new, old, bound, _how_many(guards, changed.requests, unchanged.requests))
    if new is None or old is None:
        side_name = "reached agents" if new is None else "the others"
        explanation = f"no prompt tokens to count on {side_name}, but those missed because their format is new"
        return _too_little("hit_ratio_drop", new, old, bound, explanation)
    explanation = f"hit ratio {new:.1%} against {old:.1%} elsewhere; {bound:.1%} less is the most"
    if old - new <= bound:
        return Finding("hit_ratio_drop", new, old, bound, "kept", explanation)
    # Tokens of one request are hit or missed together, so the evidence is the number of requests, not of tokens.
    is_chance = _is_chance(new, changed.requests, old, unchanged.requests)
    return _worse("hit_ratio_drop", new, old, bound, explanation, is_chance=is_chance)


def _first_tokens(guards: Guards, bound: float, changed: Side, unchanged: Side) -> Finding:
    new, old = changed.ttft_p95, unchanged.ttft_p95
    if new is None or old is None or _is_little(guards, changed.answers, unchanged.answers):
        explanation = _how_many(guards, changed.answers, unchanged.answers)
        return _too_little("ttft_p95_rise", new, old, bound, explanation)
    explanation = f"first tokens took {new * 1000:.0f} ms (p95) against {old * 1000:.0f} ms elsewhere"
    explanation = f"{explanation}; {bound:.0%} longer is the most"
    limit = old * (1 + bound)
    if new <= limit:
        return Finding("ttft_p95_rise", new, old, bound, "kept", explanation)
    slower = share_slower(changed.counts.ttft, limit)
    is_chance = _is_chance(slower, changed.answers, SLOWEST, unchanged.answers)
    return _worse("ttft_p95_rise", new, old, bound, explanation, is_chance=is_chance)


def _is_chance(new: float, new_count: int, old: float, old_count: int) -> bool:
    """Return whether two shares of samples this large may differ this much by chance."""
    return abs(new - old) <= SIGMAS * sqrt(_variance(new, new_count) + _variance(old, old_count))


def _variance(share: float, count: int) -> float:
    """Return the variance of a share. Even 0 or 1 is uncertain, so one more sample of each outcome is assumed."""
    smoothed = (share * count + 1) / (count + 2)
    return smoothed * (1 - smoothed) / (count + 2)


def _is_little(guards: Guards, changed: int, unchanged: int) -> bool:
    return min(changed, unchanged) < guards.min_requests


def _how_many(guards: Guards, changed: int, unchanged: int) -> str:
    return f"{changed} requests on reached agents and {unchanged} on the others, {guards.min_requests} are needed"


def _too_little(guard: str, new: float | None, old: float | None, bound: float, explanation: str) -> Finding:
    return Finding(guard, new, old, bound, "too little", explanation)


def _worse(guard: str, new: float, old: float, bound: float, explanation: str, *, is_chance: bool) -> Finding:
    if is_chance:
        return _too_little(guard, new, old, bound, f"{explanation}, but on so few requests this may be chance")
    return Finding(guard, new, old, bound, "breached", explanation)
