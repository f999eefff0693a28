"""Copy pages, many in one go: within one arena, or into another one (a host tier's, say).

arena uint8 [capacity]; sources and targets byte offsets [pages]; size_bytes of one page. One read and one write of
every page; bandwidth-bound. All are copied in no order, so no target may overlap another target or any source:
`copy_rounds` cuts copies that have an order into rounds that have none. Between devices the copies are the copy
engines' (the multiprocessors stay with attention), and do not wait where the host's arena is pinned: before the host
reads it, wait for the stream.
"""

from __future__ import annotations  # Triton may not be there, and annotations are its words

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from kernels.aot import CompileCase
from kernels.dispatch import implementation, jit, tl, triton
from kernels.errors import InvalidArgument
from kernels.formats import KvFormat
from kernels.ranges import Offsets, ranges_checked, units

BLOCK_WORDS = 4096  # of 32 bits: 16 KiB a program, 128 bytes a thread


def page_copy(arena: Tensor, sources: Offsets, targets: Offsets, size_bytes: int, into: Tensor | None = None) -> None:
    """Copy the page at each source to its target, which lies in `into` if that is given. Raises InvalidArgument."""
    begins = ranges_checked(arena, "sources", sources, size_bytes)
    into, ends = _targets_checked(arena, targets, size_bytes, into)
    if len(begins) != len(ends):
        raise InvalidArgument("targets", len(ends), f"as many as the {len(begins)} sources")
    if not begins:
        return
    _refuse_overlaps(arena.data_ptr(), begins, into.data_ptr(), ends, size_bytes)
    copy = _by_kernel if arena.device == into.device and implementation(arena) == "triton" else _by_runs
    copy(arena, begins, into, ends, size_bytes)


def page_copy_reference(
    arena: Tensor, sources: Sequence[int], targets: Sequence[int], size_bytes: int, into: Tensor
) -> None:
    for source, target in zip(sources, targets, strict=True):
        into[target : target + size_bytes] = arena[source : source + size_bytes]


def copy_rounds(sources: Sequence[int], targets: Sequence[int], size_bytes: int) -> list[slice]:
    """Cut copies that are done one after the other within one arena into rounds that `page_copy` may do at once:
    `sources[round]` to `targets[round]`, round after round, leaves the same bytes.
    """
    begins = [0]
    read: list[int] = []
    written: list[int] = []
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if any(_is_near(*pair, size_bytes) for pair in ((written, source), (written, target), (read, target))):
            begins.append(index)
            read, written = [], []
        insort(read, source)
        insort(written, target)
    return [slice(begin, end) for begin, end in zip(begins, [*begins[1:], len(sources)], strict=True) if begin < end]


def _is_near(ordered: Sequence[int], offset: int, size_bytes: int) -> bool:
    """Whether a page at `offset` overlaps one of those."""
    place = bisect_left(ordered, offset - size_bytes + 1)
    return place < len(ordered) and ordered[place] < offset + size_bytes


def _targets_checked(
    arena: Tensor, targets: Offsets, size_bytes: int, into: Tensor | None
) -> tuple[Tensor, Sequence[int]]:
    if into is None:
        return arena, ranges_checked(arena, "targets", targets, size_bytes)
    try:
        return into, ranges_checked(into, "targets", targets, size_bytes)
    except InvalidArgument as problem:
        name = "into" if problem.argument == "arena" else problem.argument
        raise InvalidArgument(name, problem.value, problem.wanted) from None


def _refuse_overlaps(
    arena_at: int, sources: Sequence[int], into_at: int, targets: Sequence[int], size_bytes: int
) -> None:
    """By address, for two arenas may share memory."""
    written = torch.tensor(targets, dtype=torch.int64).sort().values
    if (close := written.diff() < size_bytes).any():
        target = int(written[1:][close][0])
        raise InvalidArgument("targets", target, f"{size_bytes} bytes or more after the target before it")
    read = torch.tensor(sources, dtype=torch.int64) + (arena_at - into_at)
    place = torch.searchsorted(written, read - size_bytes, right=True).clamp_max_(len(targets) - 1)
    if (close := (written[place] - read).abs() < size_bytes).any():
        source = sources[int(close.nonzero()[0])]
        raise InvalidArgument("sources", source, f"apart from every target by {size_bytes} bytes (see copy_rounds)")


def _by_runs(arena: Tensor, sources: Sequence[int], into: Tensor, targets: Sequence[int], size_bytes: int) -> None:
    for source, target, run_bytes in _runs(sources, targets, size_bytes):
        into[target : target + run_bytes].copy_(arena[source : source + run_bytes], non_blocking=True)


def _runs(sources: Sequence[int], targets: Sequence[int], size_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Pages that lie one after the other in both places are one copy: its source, its target, its bytes."""
    pairs = sorted(zip(sources, targets, strict=True))
    source, target = pairs[0]
    run_bytes = size_bytes
    for following in pairs[1:]:
        if following == (source + run_bytes, target + run_bytes):
            run_bytes += size_bytes
        else:
            yield source, target, run_bytes
            (source, target), run_bytes = following, size_bytes
    yield source, target, run_bytes


@jit
def _page_copy_kernel(arena, into, sources, targets, words, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """sources and targets count 16 bytes; a program copies BLOCK of one page's 32-bit words."""
    page, block = tl.program_id(0), tl.program_id(1)
    source = tl.load(sources + page) * 4  # int64: an arena has more than 2**31 bytes
    target = tl.load(targets + page) * 4
    word = block * BLOCK + tl.arange(0, BLOCK)
    is_there = word < words
    copied = tl.load(arena.to(tl.pointer_type(tl.int32)) + source + word, mask=is_there)
    tl.store(into.to(tl.pointer_type(tl.int32)) + target + word, copied, mask=is_there)


def _by_kernel(arena: Tensor, sources: Sequence[int], into: Tensor, targets: Sequence[int], size_bytes: int) -> None:
    words = size_bytes // 4
    grid = (len(sources), triton.cdiv(words, BLOCK_WORDS))
    device = arena.device
    pairs = units(sources, device), units(targets, device)
    _page_copy_kernel[grid](arena, into, *pairs, words, BLOCK=BLOCK_WORDS, enable_fp_fusion=False)


def compile_cases(head_size: int, kv_format: KvFormat) -> list[CompileCase]:
    """The same for every format: a page is bytes."""
    signature = {"arena": "*u8", "into": "*u8", "sources": "*i64", "targets": "*i64", "words": "i32"}
    constants, options = {"BLOCK": BLOCK_WORDS}, {"enable_fp_fusion": False}
    return [CompileCase("page_copy", _page_copy_kernel, signature, constants, options, aligned=("words",))]
