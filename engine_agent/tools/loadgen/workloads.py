"""Workloads: prompts of known length with known common parts, as token ids. A server that takes text gets them as
words.

The same seed makes the same prompts for every server.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine_agent.tools.replay.trace import Request

FIRST_TOKEN, LAST_TOKEN = 100, 999  # ordinary tokens in every vocabulary we know of
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request before it is sent. `at_seconds` is None where earlier answers decide when it is sent."""

    tokens: tuple[int, ...]
    output_tokens: int
    at_seconds: float | None = None


class Vocabulary:
    """Generates tokens for prompts, pseudo-random and repeatable."""

    def __init__(self, first: int = FIRST_TOKEN, last: int = LAST_TOKEN) -> None:
        self.first, self.last = first, last

    def draw(self, count: int, *seed: object) -> tuple[int, ...]:
        """Return tokens that depend on the seed only; a shorter result is the beginning of a longer one."""
        random_ = random.Random(":".join(str(part) for part in seed))
        return tuple(random_.choices(range(self.first, self.last + 1), k=count))


def random_prompts(
    count: int, *, input_tokens: int, output_tokens: int, vocabulary: Vocabulary, seed: int = 0
) -> list[Asked]:
    """Return prompts without common parts, except by chance."""
    return [Asked(vocabulary.draw(input_tokens, seed, "random", number), output_tokens) for number in range(count)]


def shared_prefix_prompts(
    count: int,
    *,
    prefix_tokens: int,
    prefixes: int,
    input_tokens: int,
    output_tokens: int,
    vocabulary: Vocabulary,
    seed: int = 0,
) -> list[Asked]:
    """Return prompts that begin with one of `prefixes` prefixes, in equal numbers and random order.

    Each ends with its own tail of `input_tokens`.
    """
    heads = [vocabulary.draw(prefix_tokens, seed, "prefix", number) for number in range(prefixes)]
    order = [number % prefixes for number in range(count)]
    random.Random(f"{seed}:order").shuffle(order)
    return [
        Asked(heads[prefix_index] + vocabulary.draw(input_tokens, seed, "tail", number), output_tokens)
        for number, prefix_index in enumerate(order)
    ]


def trace_prompts(
    requests: Sequence[Request],
    *,
    block_tokens: int,
    scale: float = 1.0,
    vocabulary: Vocabulary,
    seed: int = 0,
) -> list[Asked]:
    """Return prompts that share the same parts as the trace's requests: equal hash ids are equal blocks.

    `scale` shortens every block and every answer, for a model with a shorter context than the trace's.
    """
    block_length = max(1, round(block_tokens * scale))
    began = requests[0].at_seconds if requests else 0.0
    prompts = []
    for number, request in enumerate(requests):
        tokens = [
            token for hash_id in request.hash_ids for token in vocabulary.draw(block_length, seed, "block", hash_id)
        ]
        input_tokens = max(1, round(request.input_tokens * scale))
        rest = vocabulary.draw(max(0, input_tokens - len(tokens)), seed, "rest", number)
        output = max(1, round(request.output_tokens * scale))
        prompts.append(Asked((*tokens[:input_tokens], *rest), output, request.at_seconds - began))
    return prompts


def as_text(tokens: Sequence[int], tokens_per_word: float) -> str:
    """Return words for about as many tokens as there are ids. Equal beginnings give equal text."""
    count = max(1, round(len(tokens) / tokens_per_word))
    return " ".join(word(tokens[min(int(index * tokens_per_word), len(tokens) - 1)]) for index in range(count))


def word(token: int) -> str:
    """Return a word of two syllables or more, different for different tokens."""
    letters = ""
    while token or len(letters) < 4:
        token, syllable = divmod(token, len(SYLLABLES))
        letters = SYLLABLES[syllable] + letters
    return letters
