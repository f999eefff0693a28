"""Represents a prompt as keyed marks: four bytes for each of its tokens, concatenated.

A mark covers its token and the few before it, so that equal marks mean equal places, and the frequency of a mark
reveals little about that of a token. Without the key it reveals nothing at all.
"""

from hashlib import blake2b

MARK_BYTES = TOKEN_BYTES = 4
SHINGLE_TOKENS = 4  # the tokens that one mark covers: its own and the three before it
_PURPOSE = b"luminet prompts"


def marks_of(packed: bytes, key: bytes, *, shingle: int = SHINGLE_TOKENS) -> bytes:
    """Return the marks of tokens, which are consecutive little-endian uint32."""
    keyed = blake2b(digest_size=MARK_BYTES, key=key[:64], person=_PURPOSE)
    padded, width = bytes((shingle - 1) * TOKEN_BYTES) + packed, shingle * TOKEN_BYTES
    marks: list[bytes] = []
    for start in range(0, len(packed), TOKEN_BYTES):
        hasher = keyed.copy()
        hasher.update(padded[start : start + width])
        marks.append(hasher.digest())
    return b"".join(marks)


def count(marks: bytes) -> int:
    return len(marks) // MARK_BYTES


def cut(marks: bytes, start: int, stop: int) -> bytes:
    return marks[start * MARK_BYTES : stop * MARK_BYTES]


def common(first: bytes, second: bytes) -> int:
    """Return how many marks two strings have in common at their beginning."""
    low, high = 0, min(len(first), len(second)) // MARK_BYTES
    while low < high:  # most prompts diverge early: comparing long stretches first would waste work
        middle = min(high, max(low * 2, low + 8))
        if first[low * MARK_BYTES : middle * MARK_BYTES] == second[low * MARK_BYTES : middle * MARK_BYTES]:
            low = middle
        else:
            return low + _parting(first, second, low, middle)
    return low


def _parting(first: bytes, second: bytes, low: int, high: int) -> int:
    """Return how many marks agree before the difference in this stretch."""
    return next(
        index - low
        for index in range(low, high)
        if first[index * MARK_BYTES : (index + 1) * MARK_BYTES] != second[index * MARK_BYTES : (index + 1) * MARK_BYTES]
    )
