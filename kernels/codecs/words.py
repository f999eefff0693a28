"""Codes unpacked two at a time: what makes decoding on a GPU cheap.

A thread reads four bytes as one word. Masks and shifts bring the codes of bytes 0 and 2, and of bytes 1 and 3, into the
halves of words that are bit patterns of two bfloat16 numbers each; joining them puts the vector back in order and costs
no instruction. Only for head sizes that are powers of two; others go element by element.
"""

from __future__ import annotations

from kernels.codecs.rounding import typed
from kernels.dispatch import HAS_TRITON, IS_INTERPRETED, jit, tl

if HAS_TRITON:
    INTERPRETED = tl.constexpr(IS_INTERPRETED)


@jit
def load_words(arena, codes_at, mask, WORDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Codes four bytes at a time, int32 [N, WORDS]; WORDS is a power of two and all a vector has."""
    word = tl.arange(0, WORDS)
    return tl.load(typed(arena, codes_at[:, None], tl.int32) + word[None, :], mask=mask[:, None], other=0)


@jit
def in_order(even, odd, N: tl.constexpr, WORDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """int16 [N, 4 * WORDS] from words whose halves are of bytes 0 and 2, and of bytes 1 and 3."""
    first = tl.join(even.to(tl.int16), (even >> 16).to(tl.int16))
    second = tl.join(odd.to(tl.int16), (odd >> 16).to(tl.int16))
    return tl.reshape(tl.join(first, second), (N, 4 * WORDS))


@jit
def halves_in_order(low, high, N: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """[N, D] from a vector's first half and its second."""
    return tl.reshape(tl.permute(tl.join(low, high), (0, 2, 1)), (N, D))


@jit
def widened(bits):  # type: ignore[no-untyped-def]
    """float32 of the bits of bfloat16. What is computed with it and narrowed, a GPU does in bfloat16, two at once."""
    if INTERPRETED:  # which takes a subnormal bfloat16 for 0
        return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    return bits.to(tl.bfloat16, bitcast=True).to(tl.float32)


@jit
def minifloat_pairs(words, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):  # type: ignore[no-untyped-def]
    """bfloat16 bits, too small by 2 ** (127 - bias), of the codes in the low bits of both halves."""
    sign: tl.constexpr = 1 << (EXPONENT + MANTISSA)
    size = (words & ((sign - 1) * 0x10001)) << (7 - MANTISSA)
    return size | ((words & (sign * 0x10001)) << (15 - EXPONENT - MANTISSA))
