"""Splits text into pieces about as long as tokens, for use without a tokenizer."""

import re
from collections.abc import Sequence
from hashlib import blake2b

from engine_agent.divergence.marks import MARK_BYTES

_CHUNK = re.compile(r" ?[^\W\d_]{1,12}|\d{1,3}|\s+?(?=\s\S)|\s+| ?[^\w\s]|_")
Places = Sequence[tuple[int, int]]


def chunk_places(text: str, most: int) -> list[tuple[int, int]]:
    """Return (from, until) of the first pieces, at most `most`."""
    spans: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        if len(spans) == most:
            break
        spans.append(match.span())
    return spans


def chunk_marks(text: str, spans: Places) -> bytes:
    return b"".join(
        blake2b(text[start:stop].encode("utf-8", "surrogatepass"), digest_size=MARK_BYTES).digest()
        for start, stop in spans
    )
