"""Attention of one step: rows in any mix of KV formats, decoding and prefilling, in one forward pass.

Keys and values are written format by format and read group by group: one group is one format and one op. A prompt row
uses the prefill op even if only one of its tokens is left, because the bits of that op do not depend on where a chunk
began. So a hit computes the same bits as a miss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from engine_agent.engine.model import Model
from kernels.errors import InvalidArgument
from kernels.kv_write import kv_write
from kernels.layout import PageLayout
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill
from kernels.rope import apply_rope
from kernels.scales import ScaleSet
from kernels.tables import PageTable, Rope, WriteTable, page_table, write_table


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One sequence in a step: its tokens from `begin` to `end` are computed now. `offsets`: those of its pages."""

    kv_format: str
    offsets: Sequence[int]
    begin: int
    end: int
    is_decode: bool = False

    @property
    def tokens(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class _Written:
    """A step's tokens in one format. `places`: their positions in the batch; None: all, in order."""

    kv_format: str
    table: WriteTable
    rope: Rope
    places: Tensor | None
    refused: Tensor


@dataclass(frozen=True, slots=True)
class _Read:
    kv_format: str
    table: PageTable
    is_decode: bool
    places: Tensor | None


@dataclass(frozen=True, slots=True)
class BatchAttention:
    """An `Attention` for the model, made by `batch_attention`."""

    arena: Tensor
    scales: Mapping[str, ScaleSet]
    windows: Sequence[int | None]
    rope: Rope
    writes: Sequence[_Written]
    reads: Sequence[_Read]
    tokens: int = field(default=0)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        self.write(layer, keys, values)
        return self.read(layer, apply_rope(queries, self.rope))

    def write(self, layer: int, keys: Tensor, values: Tensor, *, is_turned: bool = False) -> None:
        """Write keys and values into the pages. `is_turned`: rotary positions are already applied to the keys."""
        for write in self.writes:
            mine = (keys, values) if write.places is None else (keys[write.places], values[write.places])
            scales, rope = self.scales[write.kv_format].layer(layer), None if is_turned else write.rope
            kv_write(self.arena, write.table, layer, *mine, scales, rope=rope, refused=write.refused)

    def read(self, layer: int, queries: Tensor) -> Tensor:
        """Return the attention over the pages, for queries with rotary positions already applied."""
        if len(self.reads) == 1 and self.reads[0].places is None:
            return self._read(self.reads[0], layer, queries)
        out = torch.empty_like(queries)
        for read in self.reads:
            assert read.places is not None
            out.index_copy_(0, read.places, self._read(read, layer, queries.index_select(0, read.places)))
        return out

    def refused(self) -> Tensor:
        """Return int32 [tokens]: the number of non-finite elements in each token's keys and values, over all layers."""
        if len(self.writes) == 1 and self.writes[0].places is None:
            return self.writes[0].refused
        counts = torch.zeros(self.tokens, dtype=torch.int32, device=self.arena.device)
        for write in self.writes:
            assert write.places is not None
            counts.index_copy_(0, write.places, write.refused)
        return counts

    def _read(self, read: _Read, layer: int, queries: Tensor) -> Tensor:
        attend = paged_decode if read.is_decode else paged_prefill
        scales = self.scales[read.kv_format].layer(layer)
        return attend(queries, self.arena, read.table, layer, scales, window=self.windows[layer])[0]


def batch_attention(
    model: Model,
    arena: Tensor,
    layouts: Mapping[str, PageLayout],
    scales: Mapping[str, ScaleSet],
    rows: Sequence[BatchRow],
) -> BatchAttention:
    """Build the tables for one step and check them on the host. Raises InvalidArgument."""
    for row in rows:
        if not 0 <= row.begin < row.end:
            raise InvalidArgument("rows", (row.begin, row.end), "tokens from 0 on, and at least one")
    device = arena.device
    begins = [0, *accumulate(row.tokens for row in rows)]
    total = begins[-1]

    def places(picked: Sequence[int]) -> Tensor | None:
        listed = [at for index in picked for at in range(begins[index], begins[index] + rows[index].tokens)]
        return None if len(listed) == total else torch.tensor(listed, dtype=torch.int64, device=device)

    def rope(picked: Sequence[int]) -> Rope:
        mine = [at for index in picked for at in range(rows[index].begin, rows[index].end)]
        return Rope(model.cos, model.sin, torch.tensor(mine, dtype=torch.int64, device=device))

    def written(kv_format: str, picked: Sequence[int]) -> _Written:
        layout = layouts[kv_format]
        block = layout.block_tokens
        mine = [rows[index] for index in picked]
        table = write_table(
            arena,
            layout,
            [row.offsets[at // block] for row in mine for at in range(row.begin, row.end)],
            [at % block for row in mine for at in range(row.begin, row.end)],
        )
        refused = torch.zeros(table.tokens, dtype=torch.int32, device=device)
        return _Written(kv_format, table, rope(picked), places(picked), refused)

    def read(kv_format: str, is_decode: bool, picked: Sequence[int]) -> _Read:
        mine = [rows[index] for index in picked]
        counts = [row.tokens for row in mine]
        table = page_table(arena, layouts[kv_format], [row.offsets for row in mine], [row.end for row in mine], counts)
        return _Read(kv_format, table, is_decode, places(picked))

    by_format: dict[str, list[int]] = {}
    by_group: dict[tuple[str, bool], list[int]] = {}
    for index, row in enumerate(rows):
        by_format.setdefault(row.kv_format, []).append(index)
        by_group.setdefault((row.kv_format, row.is_decode), []).append(index)
    return BatchAttention(
        arena=arena,
        scales=scales,
        windows=model.config.windows,
        rope=rope(range(len(rows))),
        writes=[written(kv_format, picked) for kv_format, picked in by_format.items()],
        reads=[read(*group, picked) for group, picked in by_group.items()],
        tokens=total,
    )
