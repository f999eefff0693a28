"""How much a client may send, and how long it may take. Sizes follow the model: what it can serve is never too long."""

from dataclasses import dataclass

from engine_agent.backends.base import ModelCard
from engine_agent.server.answers import Vocabulary

LEAST_BODY_BYTES = 2**20
BESIDE_PROMPT_BYTES = 64 * 2**10  # for everything in a body that is not its prompt
ESCAPED = 6  # bytes that JSON may take for one: \u0041
LEAST_HELD_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes: int
    held_bytes: int  # of bodies of all clients that are being received
    receive_seconds: float = 60.0  # for the whole of a body
    write_seconds: float = 30.0  # that a client may leave unread what it was sent
    stats_seconds: float = 2.0  # that /metrics waits for the engine

    @classmethod
    def of(cls, card: ModelCard, vocabulary: Vocabulary) -> "Limits":
        """A prompt of as many tokens as the context has, each as long as the longest and written in escapes, fits."""
        longest = max((len(vocabulary.token_bytes(token)) for token in range(card.vocab_size)), default=1)
        body = max(LEAST_BODY_BYTES, card.context_tokens * longest * ESCAPED + BESIDE_PROMPT_BYTES)
        return cls(body_bytes=body, held_bytes=max(LEAST_HELD_BYTES, 2 * body))
