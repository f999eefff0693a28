"""One batch whose rows keep their keys and values in different formats.

Each group of rows has a table of its own, all of one format, and one launch: of decoding where every row has one query,
of prefilling where one has more. Results are put where their queries were; nothing is converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernels.attention import attention_checked
from kernels.errors import InvalidArgument
from kernels.paged_decode import paged_decode, paged_decode_reference
from kernels.paged_prefill import paged_prefill, paged_prefill_reference
from kernels.scales import LayerScales
from kernels.tables import PageTable

Group = tuple[Tensor, PageTable]  # places of its queries in the batch, int64, in the table's order; and its table


def attend_mixed_reference(
    q: Tensor,
    arena: Tensor,
    groups: Sequence[Group],
    layer: int,
    scales: Mapping[str, LayerScales],
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Group by group, each by its op's reference."""
    out, lse = torch.empty_like(q), torch.empty(q.shape[:2], device=q.device)
    for places, table in groups:
        reference = paged_decode_reference if table.most_queries == 1 else paged_prefill_reference
        of_format = scales[table.layout.kv_format.name]
        part = reference(q[places], arena, table, layer, of_format, softmax_scale=softmax_scale, window=window)
        out[places], lse[places] = part
    return out, lse


def attend_mixed(
    q: Tensor,
    arena: Tensor,
    groups: Sequence[Group],
    layer: int,
    scales: Mapping[str, LayerScales],
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of q [queries, heads, head_size], each in exactly one group (not checked on a GPU, for which one would
    have to wait), and lse; `scales` by the format's name. Raises InvalidArgument before any memory is touched."""
    _checked(q, arena, groups, layer, scales, softmax_scale, window)
    out, lse = torch.empty_like(q), torch.empty(q.shape[:2], device=q.device)
    for places, table in groups:
        op = paged_decode if table.most_queries == 1 else paged_prefill
        of_format = scales[table.layout.kv_format.name]
        mine = q.index_select(0, places)
        means, sums = op(mine, arena, table, layer, of_format, softmax_scale=softmax_scale, window=window)
        out.index_copy_(0, places, means)
        lse.index_copy_(0, places, sums)
    return out, lse


def _checked(
    q: Tensor,
    arena: Tensor,
    groups: Sequence[Group],
    layer: int,
    scales: Mapping[str, LayerScales],
    softmax_scale: float | None,
    window: int | None,
) -> None:
    total = sum(table.tokens for _, table in groups)
    if q.ndim != 3 or q.shape[0] != total or not total:
        raise InvalidArgument("q", tuple(q.shape), f"[{total} queries of all groups, heads, head_size], and not none")
    for places, table in groups:
        if places.dtype != torch.int64 or places.shape != (table.tokens,) or places.device != q.device:
            found = f"{places.dtype} {tuple(places.shape)} on {places.device}"
            raise InvalidArgument(
                "groups", found, f"int64 [{table.tokens}] on {q.device}, the places of the table's queries"
            )
        name = table.layout.kv_format.name
        if name not in scales:
            raise InvalidArgument("scales", sorted(scales), f"a mapping that has {name}")
        attention_checked(q[: table.tokens], arena, table, layer, scales[name], softmax_scale, window)
    if q.device.type == "cpu" and len(torch.cat([places for places, _ in groups]).unique()) != total:
        raise InvalidArgument("groups", "a query in two groups", "each query in one")
    if q.device.type == "cpu" and any(bool((places < 0).any() or (places >= total).any()) for places, _ in groups):
        raise InvalidArgument("groups", "a place outside the batch", f"places from 0 to {total - 1}")
