"""Ops in C: their arguments packed as `attention.c` and `writing.c` read them. Whoever calls has checked them."""

from __future__ import annotations

from functools import cache
from struct import Struct

import torch
from torch import Tensor

from kernels.errors import KernelError
from kernels.fwht import signs
from kernels.layout import MOST_HEAD_SIZE
from kernels.native.library import Native, native
from kernels.scales import LayerScales
from kernels.tables import LONGEST, PageTable, Rope, WriteTable

ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

_ATTENTION = Struct("@10P5qd15i")
_WRITE = Struct("@13P8q13i")
_TURN = Struct("@5P3q3i")


def attention(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """Means in q's dtype, and lse."""
    layout, vectors = table.layout, table.layout.kv_format
    queries, heads, size = q.shape
    key_scales, value_scales = scales.key.contiguous(), scales.value.contiguous()
    out, lse = torch.empty_like(q), torch.empty(queries, heads)
    call = _ATTENTION.pack(
        q.data_ptr(), out.data_ptr(), lse.data_ptr(), arena.data_ptr(),
        table.pages.data_ptr(), table.lengths.data_ptr(), table.queries.data_ptr(),
        key_scales.data_ptr(), value_scales.data_ptr(), _signs(size).data_ptr(),
        layer * layout.layer_bytes, layout.key_scales_at, layout.value_codes_at, layout.value_scales_at,
        table.pages.shape[1], softmax_scale,
        table.rows, heads, layout.kv_heads, size, layout.block_tokens, min(window or 0, LONGEST),
        ELEMENTS[q.dtype], vectors.key.native, vectors.value.native,
        layout.key_code_bytes, layout.key_scale_bytes, layout.value_code_bytes, layout.value_scale_bytes,
        vectors.key.is_rotated, vectors.value.is_rotated,
    )  # fmt: skip
    _native().attend(call)
    return out, lse


def kv_write(
    arena: Tensor,
    table: WriteTable,
    layer: int,
    keys: Tensor,
    values: Tensor,
    scales: LayerScales,
    rope: Rope | None,
    refused: Tensor,
) -> bool:
    """Adds to `refused`. False if a position is not in the rope's tables; then nothing is written."""
    layout, vectors = table.layout, table.layout.kv_format
    mean = None if vectors.key.is_raw else scales.key_mean
    call = _WRITE.pack(
        arena.data_ptr(), keys.data_ptr(), values.data_ptr(), table.pages.data_ptr(), table.slots.data_ptr(),
        scales.key.data_ptr(), scales.value.data_ptr(), 0 if mean is None else mean.data_ptr(),
        *_tables_at(rope), refused.data_ptr(), _signs(layout.head_size).data_ptr(),
        layer * layout.layer_bytes, layout.key_scales_at, layout.value_codes_at, layout.value_scales_at,
        table.tokens, keys.stride(0), values.stride(0), 0 if rope is None else rope.cos.shape[0],
        layout.kv_heads, layout.head_size, layout.block_tokens,
        ELEMENTS[keys.dtype], ELEMENTS[values.dtype], vectors.key.native, vectors.value.native,
        layout.key_code_bytes, layout.key_scale_bytes, layout.value_code_bytes, layout.value_scale_bytes,
        vectors.key.is_rotated, vectors.value.is_rotated,
    )  # fmt: skip
    unknown: int = _native().kv_write(call)
    return unknown < 0


def can_turn(x: Tensor, rope: Rope) -> bool:
    """Whether `turned` may be asked: nobody has checked these arguments before."""
    tables, positions = (rope.cos, rope.sin), rope.positions
    size = x.shape[-1]
    return (
        x.ndim == 3
        and x.dtype in (torch.float32, torch.bfloat16)
        and size % 2 == 0
        and size <= MOST_HEAD_SIZE
        and x.stride()[1:] == (size, 1)
        and positions.dtype == torch.int64
        and positions.shape == x.shape[:1]
        and all(table.dtype == torch.float32 and table.shape == (len(rope.cos), size // 2) for table in tables)
        and all(tensor.is_cpu and tensor.is_contiguous() for tensor in (*tables, positions))
    )


def turned(x: Tensor, rope: Rope) -> Tensor | None:
    """x turned; None if a position is not in the tables."""
    tokens, heads, size = x.shape
    out = torch.empty(x.shape, dtype=x.dtype)
    cos, sin, positions = _tables_at(rope)
    call = _TURN.pack(
        x.data_ptr(), out.data_ptr(), cos, sin, positions,
        tokens, x.stride(0), rope.cos.shape[0], heads, size, ELEMENTS[x.dtype],
    )  # fmt: skip
    return out if _native().turn(call) < 0 else None


def _tables_at(rope: Rope | None) -> tuple[int, int, int]:
    return (0, 0, 0) if rope is None else (rope.cos.data_ptr(), rope.sin.data_ptr(), rope.positions.data_ptr())


@cache
def _signs(size: int) -> Tensor:
    """The rotation's, kept as long as the process runs, as their address is."""
    return signs(size)


def _native() -> Native:
    found = native()
    if isinstance(found, str):
        raise KernelError(f"no kernels in C: {found}")
    return found
