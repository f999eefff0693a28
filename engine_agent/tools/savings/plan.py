"""The requests of both sides: equal in length, on one side with a common beginning, on the other without.

Without prefix caching, every prompt is computed in full. A prompt with a unique beginning is also computed in full by a
server that caches; looking up and storing its blocks adds less than a hundredth. So both sides can alternate request by
request on one running server, instead of a comparison of two separate ones.
"""

from dataclasses import dataclass
from typing import Literal

from engine_agent.tools.loadgen.workloads import Asked, Vocabulary

Side = Literal["with", "without"]
SIDES: tuple[Side, Side] = ("with", "without")


@dataclass(frozen=True, slots=True)
class Plan:
    template_tokens: int = 6_000
    tail_tokens: int = 64
    output_tokens: int = 32
    rounds: int = 20
    most_together: int = 32
    bound_ms: float | None = None  # for the capacity; None: four times the median TTFT of one request without caching
    price_per_hour: float = 1.0
    seed: int = 0

    @property
    def prompt_tokens(self) -> int:
        return self.template_tokens + self.tail_tokens


class Prompts:
    """Unlimited new prompts for both sides. Use another `seed` in each run: a server may still cache the last one's."""

    def __init__(self, plan: Plan, vocabulary: Vocabulary) -> None:
        self._plan, self._vocabulary = plan, vocabulary
        self._template = vocabulary.draw(plan.template_tokens, plan.seed, "template")
        self._number = 0

    def next(self, side: Side) -> Asked:
        self._number += 1
        plan, number = self._plan, self._number
        if side == "with":
            tail = self._vocabulary.draw(plan.tail_tokens, plan.seed, "tail", number)
            return Asked(self._template + tail, plan.output_tokens)
        return Asked(self._vocabulary.draw(plan.prompt_tokens, plan.seed, "other", number), plan.output_tokens)
