"""Invented prompts of any length for test requests, new each time. Pure except for randomness."""

import secrets
from random import Random
from typing import Final

WORDS_PER_1000_TOKENS: Final = 590  # for the demo model; other tokenizers need fewer tokens
_SENTENCE: Final = (
    "the cache keeps what prompts have in common and serves it again without computing it a second time because "
    "everything that stands before the first difference is the same for all of them"
)


def fresh_text(words: int) -> str:
    """Return a text that starts with words never sent before, so that no cache can contain it."""
    chance = Random(secrets.token_hex(16))
    vocabulary = _SENTENCE.split()
    return f"Document {secrets.token_hex(8)}. {' '.join(chance.choice(vocabulary) for _ in range(words))}"


def words_for(tokens: int) -> int:
    return tokens * WORDS_PER_1000_TOKENS // 1000
