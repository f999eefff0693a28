"""The only attention there is: write a batch's keys and values into pages, then read everything through page tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_agent.engine.model import Model
from kernels.errors import InvalidArgument
from kernels.kv_write import kv_write
from kernels.layout import PageLayout
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill
from kernels.rope import Rope, apply_rope
from kernels.scales import ScaleSet
from kernels.tables import PageTable, WriteTable, page_table, write_table


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence in a batch: where its pages begin in the arena, and which of its tokens are computed now."""

    pages: Sequence[int]
    begin: int
    end: int

    @property
    def tokens(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """One batch of rows in one format; an `Attention` for the model. Made by `paged_attention`."""

    arena: Tensor
    scales: ScaleSet
    rope: Rope
    writes: WriteTable
    reads: PageTable
    is_decode: bool = False

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        scales = self.scales.layer(layer)
        kv_write(self.arena, self.writes, layer, keys, values, scales, rope=self.rope)
        return self.read(layer, apply_rope(queries, self.rope))

    def read(self, layer: int, queries: Tensor) -> Tensor:
        """Attention of queries that have their positions already over what lies in the pages."""
        attend = paged_decode if self.is_decode else paged_prefill
        out, _ = attend(queries, self.arena, self.reads, layer, self.scales.layer(layer))
        return out


def paged_attention(
    model: Model, arena: Tensor, layout: PageLayout, scales: ScaleSet, rows: Sequence[Row], *, is_decode: bool = False
) -> PagedAttention:
    """Tables for one batch, checked on the host. Decoding has one token in each row. Raises InvalidArgument."""
    for row in rows:
        if not 0 <= row.begin < row.end:
            raise InvalidArgument("rows", (row.begin, row.end), "tokens from 0 on, and at least one")
    block = layout.block_tokens
    places = [(row.pages[at // block], at % block) for row in rows for at in range(row.begin, row.end)]
    positions = [at for row in rows for at in range(row.begin, row.end)]
    return PagedAttention(
        arena=arena,
        scales=scales,
        rope=Rope(model.cos, model.sin, torch.tensor(positions, dtype=torch.int64, device=arena.device)),
        writes=write_table(arena, layout, [page for page, _ in places], [slot for _, slot in places]),
        reads=page_table(
            arena, layout, [row.pages for row in rows], [row.end for row in rows], [r.tokens for r in rows]
        ),
        is_decode=is_decode,
    )
