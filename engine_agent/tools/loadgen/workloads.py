"""What is asked: prompts of known length, and what they share. Token ids, which a server that takes text gets as words.

The same seed makes the same prompts, whoever they are sent to.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine_agent.tools.replay.trace import Request

FIRST_TOKEN, LAST_TOKEN = 100, 999  # ordinary tokens in every vocabulary we know of
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request before it is sent. `at_seconds` is None where the answers before it decide when it goes."""

    tokens: tuple[int, ...]
    output_tokens: int
    at_seconds: float | None = None


class Vocabulary:
    """Tokens to make prompts of, by chance but repeatably."""

    def __init__(self, first: int = FIRST_TOKEN, last: int = LAST_TOKEN) -> None:
        self.first, self.last = first, last

    def draw(self, count: int, *seed: object) -> tuple[int, ...]:
        """Equal seeds give equal tokens, and of two lengths the shorter is the longer one's beginning."""
        random_ = random.Random(":".join(str(one) for one in seed))
        return tuple(random_.choices(range(self.first, self.last + 1), k=count))


def random_prompts(
    count: int, *, input_tokens: int, output_tokens: int, vocabulary: Vocabulary, seed: int = 0
) -> list[Asked]:
    """Nothing in common but chance."""
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
    """Each begins with one of `prefixes` beginnings, all equally often in a random order, and ends with a tail of
    `input_tokens` that is its own.
    """
    heads = [vocabulary.draw(prefix_tokens, seed, "prefix", number) for number in range(prefixes)]
    order = [number % prefixes for number in range(count)]
    random.Random(f"{seed}:order").shuffle(order)
    return [
        Asked(heads[which] + vocabulary.draw(input_tokens, seed, "tail", number), output_tokens)
        for number, which in enumerate(order)
    ]


def trace_prompts(
    requests: Sequence[Request],
    *,
    block_tokens: int,
    scale: float = 1.0,
    vocabulary: Vocabulary,
    seed: int = 0,
) -> list[Asked]:
    """What the trace's requests share, these share: equal hash ids are equal blocks. `scale` shortens every block and
    every answer alike, for a model whose context is shorter than the trace's.
    """
    long = max(1, round(block_tokens * scale))
    began = requests[0].at_seconds if requests else 0.0
    asked = []
    for number, request in enumerate(requests):
        tokens = [token for one in request.hash_ids for token in vocabulary.draw(long, seed, "block", one)]
        wanted = max(1, round(request.input_tokens * scale))
        rest = vocabulary.draw(max(0, wanted - len(tokens)), seed, "rest", number)
        output = max(1, round(request.output_tokens * scale))
        asked.append(Asked((*tokens[:wanted], *rest), output, request.at_seconds - began))
    return asked


def as_text(tokens: Sequence[int], tokens_per_word: float) -> str:
    """Words for about as many tokens as there are ids. Equal beginnings stay equal beginnings."""
    count = max(1, round(len(tokens) / tokens_per_word))
    return " ".join(word(tokens[min(int(index * tokens_per_word), len(tokens) - 1)]) for index in range(count))


def word(token: int) -> str:
    """Two syllables or more, different for different tokens."""
    found = ""
    while token or len(found) < 4:
        token, syllable = divmod(token, len(SYLLABLES))
        found = SYLLABLES[syllable] + found
    return found
