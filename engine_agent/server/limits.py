"""Limits on the size and time of clients' requests. Sizes depend on the model: no servable request is too long."""

from dataclasses import dataclass

from engine_agent.backends.base import ModelCard
from engine_agent.server.answers import Vocabulary

LEAST_BODY_BYTES = 2**20
BESIDE_PROMPT_BYTES = 64 * 2**10  # for everything in a body except its prompt
ESCAPED = 6  # the most bytes that JSON needs for one: \u0041
LEAST_HELD_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes: int
    held_bytes: int  # for the bodies that are being received from all clients
    receive_seconds: float = 60.0  # for a whole body
    write_seconds: float = 30.0  # how long a client may leave data unread
    stats_seconds: float = 2.0  # how long /metrics waits for the engine

    @classmethod
    def of(cls, card: ModelCard, vocabulary: Vocabulary) -> "Limits":
        """Return limits that fit a prompt of the whole context, with the longest tokens, all escaped."""
        longest = max((len(vocabulary.token_bytes(token)) for token in range(card.vocab_size)), default=1)
        body = max(LEAST_BODY_BYTES, card.context_tokens * longest * ESCAPED + BESIDE_PROMPT_BYTES)
        return cls(body_bytes=body, held_bytes=max(LEAST_HELD_BYTES, 2 * body))
