"""Test requests and their answers as pages show them. Pure."""

from collections.abc import Sequence

from controlplane.dashboard.experiments.asking import Answer
from controlplane.dashboard.frame.charts import value_text

Sent = tuple[str, Answer, int]  # label, answer, and its time to the first token in permille of the slowest one shown


def sent_rows(answers: Sequence[tuple[str, Answer]]) -> tuple[Sent, ...]:
    slowest = max((answer.first_token_ms for _, answer in answers), default=0.0)
    return tuple(
        (label, answer, round(1000 * answer.first_token_ms / slowest) if slowest else 0) for label, answer in answers
    )


def hit_ratio(answer: Answer) -> float:
    return answer.cached_tokens / answer.prompt_tokens if answer.prompt_tokens else 0.0


def pair_headline(first: Answer, second: Answer) -> str:
    """Return the result of the two requests, whether it is a hit or not."""
    if hit_ratio(second) >= 0.9:
        return f"The same prompt twice: {first.hit} %, then {second.hit} % came from the cache"
    why = second.miss_reason
    if why == "disabled":
        return f"Both were computed: caching is off in {second.header('namespace')}"
    return f"The second request got {second.hit} % from the cache; the rest was missed, the reason is “{why}”"


def speed_words(first: Answer, second: Answer) -> str:
    """Return the two measured times, and claim no more."""
    before, after = (value_text("milliseconds", answer.first_token_ms) for answer in (first, second))
    return f"First token after {before}, then after {after}: two requests, measured here once, network included."
