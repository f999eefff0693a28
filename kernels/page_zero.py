"""Overwrite pages with zeros, many in one go: what was purged is gone.

arena uint8 [capacity]; offsets [pages] in bytes; size_bytes of one page. One write of every page; bandwidth-bound.
Pages may overlap or be named twice: they are zero afterwards.
"""

from __future__ import annotations  # Triton may not be there, and annotations are its words

from collections.abc import Sequence

from torch import Tensor

from kernels.aot import CompileCase
from kernels.dispatch import implementation, jit, tl, triton
from kernels.formats import KvFormat
from kernels.ranges import Offsets, ranges_checked, units

BLOCK_WORDS = 4096  # of 32 bits: 16 KiB a program, 128 bytes a thread


def page_zero(arena: Tensor, offsets: Offsets, size_bytes: int) -> None:
    """Zero the page at each offset. Raises InvalidArgument."""
    begins = ranges_checked(arena, "offsets", offsets, size_bytes)
    if begins and implementation(arena) == "triton":
        _by_kernel(arena, begins, size_bytes)
    elif begins:
        page_zero_reference(arena, begins, size_bytes)


def page_zero_reference(arena: Tensor, offsets: Sequence[int], size_bytes: int) -> None:
    """Also what runs on a CPU: it is as fast as memory for pages of 16 KiB and more."""
    for offset in offsets:
        arena[offset : offset + size_bytes].zero_()


@jit
def _page_zero_kernel(arena, offsets, words, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """offsets count 16 bytes; a program zeroes BLOCK of one page's 32-bit words."""
    page, block = tl.program_id(0), tl.program_id(1)
    begin = tl.load(offsets + page) * 4  # int64: an arena has more than 2**31 bytes
    word = block * BLOCK + tl.arange(0, BLOCK)
    zeros = tl.zeros([BLOCK], tl.int32)
    tl.store(arena.to(tl.pointer_type(tl.int32)) + begin + word, zeros, mask=word < words)


def _by_kernel(arena: Tensor, offsets: Sequence[int], size_bytes: int) -> None:
    words = size_bytes // 4
    grid = (len(offsets), triton.cdiv(words, BLOCK_WORDS))
    begins = units(offsets, arena.device)
    _page_zero_kernel[grid](arena, begins, words, BLOCK=BLOCK_WORDS, enable_fp_fusion=False)


def compile_cases(head_size: int, kv_format: KvFormat) -> list[CompileCase]:
    """The same for every format: a page is bytes."""
    signature = {"arena": "*u8", "offsets": "*i64", "words": "i32"}
    constants, options = {"BLOCK": BLOCK_WORDS}, {"enable_fp_fusion": False}
    return [CompileCase("page_zero", _page_zero_kernel, signature, constants, options, aligned=("words",))]
