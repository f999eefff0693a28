"""Limits how much a client may send and how long it may take. Sizes follow the largest context that the engines serve,
up to what is safe for this machine's memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

LEAST_BODY_BYTES, MOST_BODY_BYTES = 2**20, 64 * 2**20
BESIDE_PROMPT_BYTES = 64 * 2**10  # allowance for everything in a body except its prompt
# Of one token, written in escapes. Engines know their tokenizers and are stricter.
MOST_TOKEN_BYTES = 256 * 6
HELD_BYTES = 4 * MOST_BODY_BYTES
SPARE_FILES, LEAST_CONNECTIONS = 256, 64


def connections_most(files: int) -> int:
    """Return the most client connections. Each may need one to an engine, and health checks need files."""
    return max(LEAST_CONNECTIONS, (files - SPARE_FILES) // 2)


@dataclass(frozen=True, slots=True)
class Limits:
    most_context_tokens: Callable[[], int]  # the longest context of all models, now
    receive_seconds: float = 60.0  # time limit of a complete body
    write_seconds: float = 30.0  # time limit for a client to read what it was sent

    @property
    def body_bytes(self) -> int:
        needed = self.most_context_tokens() * MOST_TOKEN_BYTES + BESIDE_PROMPT_BYTES
        return min(MOST_BODY_BYTES, max(LEAST_BODY_BYTES, needed))

    @property
    def held_bytes(self) -> int:
        return HELD_BYTES
