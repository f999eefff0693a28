"""What kernels are measured and checked with: rows of random keys and values, in scattered pages and in one piece.

Sizes are counted here too, the same for every bench: bytes that an op must move at least, products that it must add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from kernels.formats import KvFormat
from kernels.kv_write import kv_write
from kernels.layout import BLOCK_TOKENS, PageLayout
from kernels.scales import LayerScales, neutral_scales
from kernels.tables import PageTable, WriteTable, page_table, write_table

WRITTEN_AT_ONCE = 8192  # tokens: what is quantised at once is float32 in between


@dataclass(frozen=True, slots=True)
class Shape:
    """One layer's attention: `rows` sequences of `context` tokens, of which the last `new` ask."""

    heads: int
    kv_heads: int
    head_size: int
    rows: int
    context: int
    new: int = 1

    def __str__(self) -> str:
        asked = "" if self.new == 1 else f"{self.new:,} new of "
        return f"{self.heads}/{self.kv_heads} heads of {self.head_size}, {self.rows} × {asked}{self.context:,}"

    def layout(self, kv_format: KvFormat) -> PageLayout:
        """Of one layer: attention reads no other."""
        return PageLayout(kv_format, 1, self.kv_heads, self.head_size)

    def kv_bytes(self, kv_format: KvFormat) -> int:
        """Keys and values that a step reads, with their scales."""
        return self.rows * self.context * self.kv_heads * kv_format.token_bytes(self.head_size)

    def pages(self) -> int:
        return self.rows * -(-self.context // BLOCK_TOKENS)

    def seen(self) -> int:
        """Pairs of a query and a key that it sees, in all rows."""
        return self.rows * (self.new * self.context - self.new * (self.new - 1) // 2)

    def flops(self) -> int:
        """Of a causal attention: two products of `head_size` for each pair and head, each a multiply and an add."""
        return 4 * self.heads * self.head_size * self.seen()


@dataclass(frozen=True, slots=True)
class Inputs:
    shape: Shape
    layout: PageLayout
    arena: Tensor
    table: PageTable
    scales: LayerScales
    q: Tensor  # [rows * new, heads, head_size]


@dataclass(frozen=True, slots=True)
class Contiguous:
    """What contiguous attention takes: queries [rows, heads, new, head_size], keys and values with `kv_heads`."""

    q: Tensor
    keys: Tensor
    values: Tensor


def vectors(shape: Shape, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Contiguous:
    """Random queries, keys and values; about 1 in size."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, device=device, dtype=dtype)

    keys, values = (normal(shape.rows, shape.kv_heads, shape.context, shape.head_size) for _ in "kv")
    return Contiguous(normal(shape.rows, shape.heads, shape.new, shape.head_size), keys, values)


def paged(shape: Shape, kv_format: KvFormat, given: Contiguous) -> Inputs:
    """The same in pages, which lie in no order, as `kv_write` writes them."""
    layout, device = shape.layout(kv_format), given.q.device
    arena = torch.zeros(shape.pages() * layout.page_bytes, dtype=torch.uint8, device=device)
    scales = neutral_scales(layout, device).layer(0)
    offsets = scattered(layout, shape.rows, shape.pages() // shape.rows)
    for row, pages in enumerate(offsets):
        for begin in range(0, shape.context, WRITTEN_AT_ONCE):
            tokens = range(begin, min(begin + WRITTEN_AT_ONCE, shape.context))
            piece = slice(tokens.start, tokens.stop)
            keys, values = (side[row, :, piece].transpose(0, 1).contiguous() for side in (given.keys, given.values))
            kv_write(arena, places(arena, layout, pages, tokens), 0, keys, values, scales)
    table = page_table(arena, layout, offsets, [shape.context] * shape.rows, [shape.new] * shape.rows)
    q = given.q.transpose(1, 2).reshape(-1, shape.heads, shape.head_size).contiguous()
    return Inputs(shape, layout, arena, table, scales, q)


def scattered(layout: PageLayout, rows: int, pages: int, seed: int = 0) -> list[list[int]]:
    """Byte offsets of each row's pages: all pages of an arena, shuffled."""
    offsets = [page * layout.page_bytes for page in range(rows * pages)]
    Random(seed).shuffle(offsets)
    return [offsets[row * pages : (row + 1) * pages] for row in range(rows)]


def places(arena: Tensor, layout: PageLayout, pages: Sequence[int], tokens: range) -> WriteTable:
    """Where a row's tokens are written."""
    split = [divmod(token, layout.block_tokens) for token in tokens]
    return write_table(arena, layout, [pages[page] for page, _ in split], [slot for _, slot in split])
