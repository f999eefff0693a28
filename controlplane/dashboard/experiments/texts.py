"""Prompts that the control plane sends of its own: invented, of any length, and new each time. Pure but for chance."""

import secrets
from random import Random
from typing import Final

WORDS_PER_1000_TOKENS: Final = 590  # of the demo's model; others make fewer tokens of as many words
_SENTENCE: Final = (
    "the cache keeps what prompts have in common and serves it again without computing it a second time because "
    "everything that stands before the first difference is the same for all of them"
)


def fresh_text(words: int) -> str:
    """Its first words were never sent before, so that nothing of it can be in any cache."""
    chance = Random(secrets.token_hex(16))
    known = _SENTENCE.split()
    return f"Document {secrets.token_hex(8)}. {' '.join(chance.choice(known) for _ in range(words))}"


def words_for(tokens: int) -> int:
    return tokens * WORDS_PER_1000_TOKENS // 1000
