"""Requests that were sent and what came back, as pages show them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.dashboard.experiments.asking import Answer


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: `permille` of the slowest first token among those shown with it."""

    label: str
    hit: str
    tokens: str
    reason: str
    agent: str
    first_token: str
    permille: int
    headers: tuple[tuple[str, str], ...]


def sent_rows(answers: Sequence[tuple[str, Answer]]) -> tuple[Sent, ...]:
    slowest = max((one.first_token_ms for _, one in answers), default=0.0)
    return tuple(_row(label, one, slowest) for label, one in answers)


def hit_ratio(one: Answer) -> float:
    return one.cached_tokens / one.prompt_tokens if one.prompt_tokens else 0.0


def pair_headline(first: Answer, second: Answer) -> str:
    """What the two requests have shown, whichever it is."""
    if hit_ratio(second) >= 0.9:
        return f"The same prompt twice: {first.hit} %, then {second.hit} % came from the cache"
    why = second.header("miss-reason")
    if why == "disabled":
        return f"Both were computed: caching is off in {second.header('namespace')}"
    return f"The second request got {second.hit} % from the cache; the rest was missed, the reason is “{why}”"


def speed_words(first: Answer, second: Answer) -> str:
    """No more than was measured: two requests, once."""
    before, after = (_milliseconds(one.first_token_ms) for one in (first, second))
    return f"First token after {before}, then after {after}: two requests, measured here once, network included."


def _row(label: str, one: Answer, slowest: float) -> Sent:
    return Sent(
        label=label,
        hit=f"{one.hit} %",
        tokens=f"{one.cached_tokens:,} of {one.prompt_tokens:,}",
        reason=one.header("miss-reason"),
        agent=one.header("agent"),
        first_token=_milliseconds(one.first_token_ms),
        permille=round(1000 * one.first_token_ms / slowest) if slowest else 0,
        headers=one.headers,
    )


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms"
