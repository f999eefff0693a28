"""Rows C1 and C2: what one repetition is, and how many make a sample. Both sides run this very code, each in a process
of its own with what keeps its blocks: ours in `cache_worker`, vLLM's in `vllm_worker`.

Standard library only. The pool holds eight prompts of 4,096 tokens from four tenants and is full before anything is
measured, so every new prompt evicts as many blocks as it needs. Prompts differ from their first token on.
"""

import gc
import platform
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Protocol

PROMPT_TOKENS = 4096
BLOCK_TOKENS = 16
TENANTS = 4
PROMPTS_IN_POOL = 8
POOL_BLOCKS = PROMPTS_IN_POOL * PROMPT_TOKENS // BLOCK_TOKENS
# What one layer of two K/V heads of 64 takes in bf16. It is only counted: neither side allocates any of it.
BLOCK_BYTES = 2 * 2 * 64 * 2 * BLOCK_TOKENS
VOCABULARY = 128_256
WARM_UP = 4 * PROMPTS_IN_POOL

NEW_PROMPT, FULL_HIT = "new prompt", "full hit"
WHOLE = "whole"
AFTERWARDS = "free (not in the whole)"  # of a new prompt: it stays until its answer is finished


@dataclass(frozen=True, slots=True)
class Round:
    """One repetition: how long the whole took and each of its parts, and what shows that it did what it should."""

    seconds: float
    parts: Mapping[str, float]
    evicted_blocks: int
    hit_tokens: int


class Bookkeeping(Protocol):
    """What keeps blocks. A round's seconds have what the row speaks of; what else it must do comes before or after."""

    def new_prompt(self, tokens: list[int], tenant: int) -> Round:
        """Hash, look up, take blocks and make them findable; given back afterwards."""
        ...

    def full_hit(self, tokens: list[int], tenant: int) -> Round:
        """Of a prompt hashed before: look up, take, give back."""
        ...


class Stopwatch:
    """The parts of something, one after the other."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._began = self._mark = perf_counter()

    def lap(self, part: str) -> None:
        now = perf_counter()
        self.parts[part] = now - self._mark
        self._mark = now

    @property
    def seconds(self) -> float:
        """From the beginning to the end of the last part."""
        return self._mark - self._began


class Rounds:
    """Answers `{"measure": …, "rounds": n}` with medians of n repetitions in µs, and with their evidence."""

    def __init__(self, bookkeeping: Bookkeeping, *, seed: int = 4096) -> None:
        self._bookkeeping, self._random = bookkeeping, random.Random(seed)
        self._measures: dict[str, Callable[[int], list[Round]]] = {
            NEW_PROMPT: self._new_prompts,
            FULL_HIT: self._full_hits,
        }
        self._new_prompts(WARM_UP)
        self._full_hits(WARM_UP)

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        rounds = self._measures[question["measure"]](question["rounds"])
        parts = {part: [one.parts[part] for one in rounds] for part in rounds[0].parts}
        taken = {WHOLE: [one.seconds for one in rounds], **parts}
        return {
            "µs": {part: median(seconds) * 1e6 for part, seconds in taken.items()},
            "evicted_blocks": [one.evicted_blocks for one in rounds],
            "hit_tokens": [one.hit_tokens for one in rounds],
        }

    def _new_prompts(self, count: int) -> list[Round]:
        return [self._bookkeeping.new_prompt(self._prompt(), number % TENANTS) for number in range(count)]

    def _full_hits(self, count: int) -> list[Round]:
        """One prompt of each tenant, in turn; brought in before, and never out of use long enough to be evicted."""
        prompts = [self._prompt() for _ in range(TENANTS)]
        for tenant, prompt in enumerate(prompts):
            self._bookkeeping.new_prompt(prompt, tenant)
        return [self._bookkeeping.full_hit(prompts[n % TENANTS].copy(), n % TENANTS) for n in range(count)]

    def _prompt(self) -> list[int]:
        return self._random.choices(range(VOCABULARY), k=PROMPT_TOKENS)


def settle_garbage() -> str:
    """What vLLM's engine does when it has started, and any long-lived process may; and how to say so."""
    gc.collect()
    gc.freeze()
    state = "on" if gc.isenabled() else "off"
    return f"{state}, thresholds {gc.get_threshold()}, with what was there at the start frozen, as vLLM's engine does"


def prepared(make: Callable[[], Bookkeeping]) -> tuple[dict[str, Any], Callable[..., dict[str, Any]]]:
    """For `answers.serve`: the side with its pool full and its garbage settled."""
    rounds = Rounds(make())
    return {"python": platform.python_version(), "gc": settle_garbage()}, rounds.answer
