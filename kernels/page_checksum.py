"""A checksum of each page, the same on every device: whether what arrives is what was sent.

arena uint8 [capacity]; offsets [pages] in bytes; size_bytes of one page -> int64 [pages] on the arena's device. One
read of every page; bandwidth-bound. With w[i] the page's i-th 32-bit word (little-endian, two's complement) it is

    sum over i of (w[i] + 1) * m[i]    mod 2**64, as a signed number

where m[i] is the i-th number of the generator splitmix64 seeded with 0, its lowest bit set. An odd m[i] times a
difference of less than 2**32 is never 0, so a change within one word is always seen: a wrong byte, a moved scale. Words
that change places, pages cut at another stride and whatever else is not made on purpose goes unseen once in 2**32
times at the very most. It is no protection against somebody who wants to deceive.
"""

from __future__ import annotations  # Triton may not be there, and annotations are its words

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.aot import CompileCase
from kernels.dispatch import implementation, jit, tl, triton
from kernels.formats import KvFormat
from kernels.ranges import Offsets, ranges_checked, units

BLOCK_WORDS = 2048  # of 32 bits: what a program takes of each of its pages
PAGES_A_PROGRAM = 8  # they share the multipliers it has loaded
CONSTANTS = {"BLOCK": BLOCK_WORDS, "PAGES": PAGES_A_PROGRAM}

_known: dict[torch.device, Tensor] = {}


def page_checksum(arena: Tensor, offsets: Offsets, size_bytes: int) -> Tensor:
    """The checksum of the page at each offset. Raises InvalidArgument."""
    begins = ranges_checked(arena, "offsets", offsets, size_bytes)
    if not begins:
        return torch.empty(0, dtype=torch.int64, device=arena.device)
    if implementation(arena) == "triton":
        return _by_kernel(arena, begins, size_bytes)
    return page_checksum_reference(arena, begins, size_bytes)


def page_checksum_reference(arena: Tensor, offsets: Sequence[int], size_bytes: int) -> Tensor:
    """Also what runs on a CPU. Products and sums wrap around, as int64 does."""
    m = multipliers(size_bytes // 4, arena.device)
    words = (arena[offset : offset + size_bytes].view(torch.int32).to(torch.int64) for offset in offsets)
    return torch.stack([torch.dot(w, m) for w in words]) + m.sum()


def multipliers(count: int, device: torch.device) -> Tensor:
    """m[0], m[1], …; the longest that was ever asked for is kept."""
    known = _known.get(device)
    if known is None or known.numel() < count:
        known = _known[device] = splitmix64(count).bitwise_or(1).to(device)
    return known[:count]


def splitmix64(count: int) -> Tensor:
    """The generator's first numbers, seeded with 0, as int64."""
    z = torch.arange(1, count + 1) * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _signed(number: int) -> int:
    return number - (1 << 64)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """To the right, with zeros coming in: int64's own shift keeps the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


@jit
def _page_checksum_kernel(  # type: ignore[no-untyped-def]
    arena, offsets, multipliers, sums, pages, words, BLOCK: tl.constexpr, PAGES: tl.constexpr
):  # fmt: skip
    """offsets count 16 bytes; a program adds BLOCK words of each of PAGES pages to their sums."""
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_there = word < words
    multiplier = tl.load(multipliers + word, mask=is_there, other=0)  # 0: what is not there adds nothing
    first = tl.program_id(0) * PAGES
    for page in range(first, tl.minimum(first + PAGES, pages)):
        begin = tl.load(offsets + page) * 4  # int64: an arena has more than 2**31 bytes
        w = tl.load(arena.to(tl.pointer_type(tl.int32)) + begin + word, mask=is_there, other=0)
        tl.atomic_add(sums + page, tl.sum((w.to(tl.int64) + 1) * multiplier, 0), sem="relaxed")


def _by_kernel(arena: Tensor, offsets: Sequence[int], size_bytes: int) -> Tensor:
    words, pages, device = size_bytes // 4, len(offsets), arena.device
    sums = torch.zeros(pages, dtype=torch.int64, device=device)
    grid = (triton.cdiv(pages, PAGES_A_PROGRAM), triton.cdiv(words, BLOCK_WORDS))
    given = arena, units(offsets, device), multipliers(words, device), sums, pages, words
    _page_checksum_kernel[grid](*given, **CONSTANTS, enable_fp_fusion=False)
    return sums


def compile_cases(head_size: int, kv_format: KvFormat) -> list[CompileCase]:
    """The same for every format: a page is bytes."""
    pointers = {"arena": "*u8", "offsets": "*i64", "multipliers": "*i64", "sums": "*i64"}
    signature = {**pointers, "pages": "i32", "words": "i32"}
    options = {"enable_fp_fusion": False}
    return [CompileCase("page_checksum", _page_checksum_kernel, signature, CONSTANTS, options, aligned=("words",))]
