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
        one = keyed.copy()
        one.update(padded[start : start + width])
        marks.append(one.digest())
    return b"".join(marks)


def count(marks: bytes) -> int:
    return len(marks) // MARK_BYTES


def cut(marks: bytes, start: int, stop: int) -> bytes:
    return marks[start * MARK_BYTES : stop * MARK_BYTES]


def common(one: bytes, other: bytes) -> int:
    """Return how many marks two strings have in common at their beginning."""
    low, high = 0, min(len(one), len(other)) // MARK_BYTES
    while low < high:  # most prompts diverge early: comparing long stretches first would waste work
        middle = min(high, max(low * 2, low + 8))
        if one[low * MARK_BYTES : middle * MARK_BYTES] == other[low * MARK_BYTES : middle * MARK_BYTES]:
            low = middle
        else:
            return low + _parting(one, other, low, middle)
    return low


def _parting(one: bytes, other: bytes, low: int, high: int) -> int:
    """Return how many marks agree before the difference in this stretch."""
    return next(
        place - low
        for place in range(low, high)
        if one[place * MARK_BYTES : (place + 1) * MARK_BYTES] != other[place * MARK_BYTES : (place + 1) * MARK_BYTES]
    )
