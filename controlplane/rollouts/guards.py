"""Whether agents with a new policy do worse than agents without it, and by which numbers. Pure."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from controlplane.rollouts.evidence import Side
from controlplane.rollouts.spec import Guards

Verdict = Literal["kept", "breached", "too little"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One guard: both sides' figure, how far apart they may be, and what follows."""

    guard: str
    changed: float | None
    unchanged: float | None
    bound: float
    verdict: Verdict
    words: str

    def stored(self) -> dict[str, Any]:
        return asdict(self)


def judge(guards: Guards, changed: Side, unchanged: Side) -> tuple[Finding, ...]:
    """Every guard that is set. Nothing is decided on fewer requests than `min_requests`, on either side."""
    found = []
    if guards.error_ratio is not None:
        found.append(_errors(guards, guards.error_ratio, changed, unchanged))
    if guards.hit_ratio_drop is not None:
        found.append(_hits(guards, guards.hit_ratio_drop, changed, unchanged))
    if guards.ttft_p95_rise is not None:
        found.append(_first_tokens(guards, guards.ttft_p95_rise, changed, unchanged))
    return tuple(found)


def _errors(guards: Guards, bound: float, changed: Side, unchanged: Side) -> Finding:
    new, old = changed.error_ratio, unchanged.error_ratio
    if new is None or old is None or _is_little(guards, changed.requests, unchanged.requests):
        return _too_little("error_ratio", new, old, bound, _how_many(guards, changed.requests, unchanged.requests))
    words = f"{new:.1%} of {changed.requests} requests failed, {old:.1%} of {unchanged.requests} elsewhere"
    return _compared("error_ratio", new, old, bound, new - old > bound, f"{words}; {bound:.1%} more is the most")


def _hits(guards: Guards, bound: float, changed: Side, unchanged: Side) -> Finding:
    new, old = changed.hit_ratio, unchanged.hit_ratio
    if _is_little(guards, changed.requests, unchanged.requests):
        return _too_little("hit_ratio_drop", new, old, bound, _how_many(guards, changed.requests, unchanged.requests))
    if new is None or old is None:
        where = "reached agents" if new is None else "the others"
        words = f"no prompt tokens to count on {where}, but those missed because their format is new"
        return _too_little("hit_ratio_drop", new, old, bound, words)
    words = f"hit ratio {new:.1%} against {old:.1%} elsewhere; {bound:.1%} less is the most"
    return _compared("hit_ratio_drop", new, old, bound, old - new > bound, words)


def _first_tokens(guards: Guards, bound: float, changed: Side, unchanged: Side) -> Finding:
    new, old = changed.ttft_p95, unchanged.ttft_p95
    if new is None or old is None or _is_little(guards, changed.answers, unchanged.answers):
        words = _how_many(guards, changed.answers, unchanged.answers)
        return _too_little("ttft_p95_rise", new, old, bound, words)
    words = f"first tokens took {new * 1000:.0f} ms (p95) against {old * 1000:.0f} ms elsewhere"
    is_breached = new > old * (1 + bound)
    return _compared("ttft_p95_rise", new, old, bound, is_breached, f"{words}; {bound:.0%} longer is the most")


def _is_little(guards: Guards, changed: int, unchanged: int) -> bool:
    return min(changed, unchanged) < guards.min_requests


def _how_many(guards: Guards, changed: int, unchanged: int) -> str:
    return f"{changed} requests on reached agents and {unchanged} on the others, {guards.min_requests} are needed"


def _too_little(guard: str, new: float | None, old: float | None, bound: float, words: str) -> Finding:
    return Finding(guard, new, old, bound, "too little", words)


def _compared(guard: str, new: float, old: float, bound: float, is_breached: bool, words: str) -> Finding:
    return Finding(guard, new, old, bound, "breached" if is_breached else "kept", words)
