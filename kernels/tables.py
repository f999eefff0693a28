"""Page tables: which bytes of the arena a batch reads or writes, checked once, on the host.

Ops trust a table: what is out of range, misaligned or empty was refused when it was made, before any memory was
touched, so that no op has to ask a GPU what its indices are. A page is named by the byte offset at which it begins.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, filterfalse
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor

from kernels.errors import InvalidArgument
from kernels.layout import ALIGNMENT, PageLayout

LONGEST = 2**31 - 1  # tokens of a row: kernels count them in 32 bits


@dataclass(frozen=True, slots=True)
class PageTable:
    """What rows (sequences) of one format read. Made by `page_table`."""

    layout: PageLayout
    pages: Tensor  # int64 [rows, most]: byte offsets; a short row is filled up with its first page
    lengths: Tensor  # int32 [rows]: tokens in the pages, those of the current chunk too
    queries: Tensor  # int32 [rows + 1]: where each row's queries begin; of decoding 0, 1, 2, …
    rows: int
    longest: int
    most_queries: int
    tokens: int  # queries of all rows
    row_lengths: tuple[int, ...]  # on the host, as `lengths`
    row_queries: tuple[int, ...]
    reach: int  # no byte from here on is touched


@dataclass(frozen=True, slots=True)
class WriteTable:
    """Where tokens of one format are written. Made by `write_table`."""

    layout: PageLayout
    pages: Tensor  # int64 [tokens]: byte offset of each token's page
    slots: Tensor  # int32 [tokens]: which of the page's tokens it is
    tokens: int
    reach: int  # no byte from here on is touched


@dataclass(frozen=True, slots=True)
class Rope:
    """The angles' tables and which row of them each token takes."""

    cos: Tensor  # float32 [positions, head_size / 2]
    sin: Tensor
    positions: Tensor  # int64 [tokens]


def arena_checked(arena: Tensor, reach: int = 0) -> Tensor:
    """The bytes that hold every page: flat, contiguous, aligned, and as many as a table was checked against."""
    if arena.dtype != torch.uint8 or arena.ndim != 1:
        raise InvalidArgument("arena", f"{arena.dtype} {tuple(arena.shape)}", "one flat tensor of uint8")
    if not arena.is_contiguous():
        raise InvalidArgument("arena", f"stride {arena.stride()}", "contiguous")
    if arena.data_ptr() % ALIGNMENT or arena.storage_offset() % ALIGNMENT:
        raise InvalidArgument("arena", f"at address {arena.data_ptr()}", f"aligned to {ALIGNMENT} bytes in its memory")
    if arena.numel() < reach:
        raise InvalidArgument("arena", f"{arena.numel()} bytes", f"as large as the table reaches, {reach} bytes")
    return arena


def offsets_checked(name: str, offsets: Iterable[int], size_bytes: int, capacity_bytes: int) -> list[int]:
    """Byte offsets at which `size_bytes` lie within the arena. Raises InvalidArgument, naming the first that do not."""
    checked = whole_numbers(name, offsets)
    _places_checked(name, checked, size_bytes, capacity_bytes)
    found: list[int] = checked.tolist()
    return found


def whole_numbers(name: str, values: Iterable[int]) -> Tensor:
    """int64 on the host, at a few nanoseconds a number. Raises InvalidArgument for what is none."""
    listed = list(values)
    try:
        packed = array("q", listed)
    except (TypeError, OverflowError):
        raise InvalidArgument(name, next(filterfalse(_is_whole, listed)), "a whole number of 64 bits") from None
    return torch.frombuffer(packed, dtype=torch.int64) if packed else torch.empty(0, dtype=torch.int64)


def _is_whole(value: object) -> bool:
    return isinstance(value, SupportsIndex) and -(2**63) <= index(value) < 2**63


def page_table(
    arena: Tensor,
    layout: PageLayout,
    offsets: Sequence[Sequence[int]],
    lengths: Sequence[int],
    query_counts: Sequence[int] | None = None,
) -> PageTable:
    """Rows of pages with their lengths and, for prefill, how many of their last tokens ask. Raises InvalidArgument."""
    arena_checked(arena)
    counts = [1] * len(lengths) if query_counts is None else query_counts
    if not len(lengths) or len(offsets) != len(lengths) or len(counts) != len(lengths):
        raise InvalidArgument(
            "lengths", len(lengths), f"one for each of {len(offsets)} rows with {len(counts)} counts, and not none"
        )
    lengths, counts = _counts_checked("lengths", lengths), _counts_checked("query_counts", counts)
    begins = [0, *accumulate(counts)]
    pages = _pages_of_rows(layout, offsets, lengths, counts)
    _places_checked("offsets", pages, layout.page_bytes, arena.numel())
    return PageTable(
        layout=layout,
        pages=_sent(pages.view(len(offsets), -1), torch.int64, arena.device),
        lengths=_sent(whole_numbers("lengths", lengths), torch.int32, arena.device),
        queries=_sent(whole_numbers("query_counts", begins), torch.int32, arena.device),
        rows=len(offsets),
        longest=max(lengths),
        most_queries=max(counts),
        tokens=begins[-1],
        row_lengths=tuple(lengths),
        row_queries=tuple(counts),
        reach=int(pages.max()) + layout.page_bytes,
    )


def _counts_checked(name: str, numbers: Sequence[int]) -> list[int]:
    checked = whole_numbers(name, numbers)
    _between_checked(name, checked, 1, LONGEST)
    listed: list[int] = checked.tolist()
    return listed


def _pages_of_rows(
    layout: PageLayout, offsets: Sequence[Sequence[int]], lengths: Sequence[int], counts: Sequence[int]
) -> Tensor:
    """[rows · most] of what the rows read; a short row is filled up with its first page."""
    needed = [-(-length // layout.block_tokens) for length in lengths]
    most, padded = max(needed), list[int]()
    for row, length, count, pages in zip(offsets, lengths, counts, needed, strict=True):
        if not 1 <= count <= length:
            raise InvalidArgument("query_counts", count, f"between 1 and the row's {length} tokens")
        if not isinstance(row, list | tuple | array):
            raise InvalidArgument("offsets", row, "a list of byte offsets for each row")
        if len(row) < pages:
            raise InvalidArgument("offsets", len(row), f"{pages} pages for {length} tokens")
        padded += row[:pages]
        padded += [row[0]] * (most - pages)
    return whole_numbers("offsets", padded)


def write_table(arena: Tensor, layout: PageLayout, pages: Sequence[int], slots: Sequence[int]) -> WriteTable:
    """One page and one slot for each token; no place twice. Raises InvalidArgument."""
    arena_checked(arena)
    if not len(pages) or len(pages) != len(slots):
        raise InvalidArgument("pages", len(pages), f"one for each of {len(slots)} slots, and not none")
    begins, within = whole_numbers("pages", pages), whole_numbers("slots", slots)
    _between_checked("slots", within, 0, layout.block_tokens - 1)
    _places_checked("pages", begins, layout.page_bytes, arena.numel())
    _apart_checked(begins, within, layout)
    return WriteTable(
        layout=layout,
        pages=_sent(begins, torch.int64, arena.device),
        slots=_sent(within, torch.int32, arena.device),
        tokens=len(pages),
        reach=int(begins.max()) + layout.page_bytes,
    )


def _apart_checked(begins: Tensor, within: Tensor, layout: PageLayout) -> None:
    """No place twice: pages are the same or apart, and no two tokens share a slot of one."""
    pages = torch.unique(begins)
    if len(close := (pages[1:] - pages[:-1] < layout.page_bytes).nonzero()):
        raise InvalidArgument(
            "pages", int(pages[close[0] + 1]), f"at least {layout.page_bytes} bytes behind the page before"
        )
    places, counts = torch.unique(begins * layout.block_tokens + within, return_counts=True)
    if len(shared := places[counts > 1]):
        page, slot = divmod(int(shared[0]), layout.block_tokens)
        raise InvalidArgument("slots", slot, f"a slot of the page at {page} that only one token takes")


def _places_checked(name: str, offsets: Tensor, size_bytes: int, capacity_bytes: int) -> None:
    wrong = offsets[(offsets < 0) | (offsets > capacity_bytes - size_bytes)]
    if len(wrong):
        wanted = f"the begin of {size_bytes} bytes within an arena of {capacity_bytes}"
        raise InvalidArgument(name, int(wrong[0]), wanted)
    if len(wrong := offsets[offsets % ALIGNMENT != 0]):
        raise InvalidArgument(name, int(wrong[0]), f"a multiple of {ALIGNMENT} bytes")


def _between_checked(name: str, numbers: Tensor, low: int, high: int) -> None:
    if len(wrong := numbers[(numbers < low) | (numbers > high)]):
        raise InvalidArgument(name, int(wrong[0]), f"between {low} and {high}")


def _sent(numbers: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """To the device, without waiting for it."""
    return numbers.to(device=device, dtype=dtype, non_blocking=True)
