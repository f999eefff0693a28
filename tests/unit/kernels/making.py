"""Arenas with pages in them, for tests: scattered, off any page's raster, and poisoned wherever nobody wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from kernels.formats import KV_FORMATS, VectorFormat, kv_format_named
from kernels.kv_write import kv_write
from kernels.layout import PageLayout
from kernels.scales import LayerScales, ScaleSet, neutral_scales
from kernels.tables import write_table

POISON = 0xFF  # NaN in every floating-point format, and no scale anyone would want

VECTORS: dict[str, VectorFormat] = {
    vector.name: vector for kv_format in KV_FORMATS.values() for vector in (kv_format.key, kv_format.value)
}


@dataclass(frozen=True, slots=True)
class Filled:
    """Rows of tokens in the pages of an arena, and what was written there."""

    arena: Tensor
    layout: PageLayout
    offsets: list[list[int]]  # of each row's pages
    lengths: list[int]
    keys: list[list[Tensor]]  # by layer and row: float32 [tokens, kv_heads, head_size]
    values: list[list[Tensor]]
    scales: ScaleSet


def make_layout(kv_format: str = "int8", layers: int = 2, kv_heads: int = 2, head_size: int = 32) -> PageLayout:
    return PageLayout(kv_format_named(kv_format), layers, kv_heads, head_size)


def make_scales(layout: PageLayout, seed: int = 0, with_means: bool = True) -> ScaleSet:
    """A set that is far from neutral."""
    generator = torch.Generator().manual_seed(seed)
    shape = (layout.layers, layout.kv_heads)
    keys, values = (torch.rand(shape, generator=generator) * 0.5 + 0.01 for _ in range(2))
    means = torch.randn(*shape, layout.head_size, generator=generator)
    return ScaleSet(keys, values, means if with_means else None)


def poisoned_arena(size_bytes: int) -> Tensor:
    return torch.full((size_bytes,), POISON, dtype=torch.uint8)


def scattered_pages(layout: PageLayout, count: int, seed: int = 0, begin: int = 0) -> tuple[list[int], int]:
    """Offsets in no order, 16 bytes off the raster here and there; and where the last one ends."""
    random, offsets, at = Random(seed), list[int](), begin
    for _ in range(count):
        at += 16 * random.randrange(3)
        offsets.append(at)
        at += layout.page_bytes
    random.shuffle(offsets)
    return offsets, at


def fill(
    layout: PageLayout,
    lengths: Sequence[int],
    *,
    seed: int = 0,
    scales: ScaleSet | None = None,
    dtype: torch.dtype = torch.float32,
    spread: float = 1.0,
    arena: Tensor | None = None,
    begin: int = 0,
) -> Filled:
    """Rows of these lengths, random keys and values in every layer. The slots behind a row's end stay poisoned."""
    counts = [-(-length // layout.block_tokens) for length in lengths]
    pages, end = scattered_pages(layout, sum(counts), seed, begin)
    arena = poisoned_arena(end + 64) if arena is None else arena
    taken = iter(pages)
    offsets = [[next(taken) for _ in range(count)] for count in counts]
    scales = neutral_scales(layout) if scales is None else scales
    generator = torch.Generator().manual_seed(seed)
    keys: list[list[Tensor]] = []
    values: list[list[Tensor]] = []
    for layer in range(layout.layers):
        made = [
            [
                (torch.randn(length, layout.kv_heads, layout.head_size, generator=generator) * spread).to(dtype)
                for _ in "kv"
            ]
            for length in lengths
        ]
        for row, (row_keys, row_values) in enumerate(made):
            write_row(arena, layout, layer, offsets[row], row_keys, row_values, scales.layer(layer))
        keys.append([row_keys.float() for row_keys, _ in made])
        values.append([row_values.float() for _, row_values in made])
    return Filled(arena, layout, offsets, list(lengths), keys, values, scales)


def write_row(
    arena: Tensor,
    layout: PageLayout,
    layer: int,
    pages: Sequence[int],
    keys: Tensor,
    values: Tensor,
    scales: LayerScales,
) -> None:
    """One row's tokens from its first on."""
    places = [divmod(token, layout.block_tokens) for token in range(len(keys))]
    table = write_table(arena, layout, [pages[page] for page, _ in places], [slot for _, slot in places])
    kv_write(arena, table, layer, keys, values, scales)
