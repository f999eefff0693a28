"""Attention without pages, written another way than in `kernels/`: float64, one query after the other, no tiles."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.formats import VectorFormat
from kernels.tables import PageTable, page_table
from kernels.vectors import decode, encode
from tests.unit.kernels.making import Filled


def table_of(filled: Filled, counts: Sequence[int] | None = None, rows: Sequence[int] | None = None) -> PageTable:
    """Of these rows, or all."""
    chosen = range(len(filled.lengths)) if rows is None else rows
    offsets, lengths = [filled.offsets[row] for row in chosen], [filled.lengths[row] for row in chosen]
    return page_table(filled.arena, filled.layout, offsets, lengths, counts)


def remembered(x: Tensor, vector: VectorFormat, static: Tensor) -> Tensor:
    """Vectors [tokens, kv_heads, size] after a round trip through a format."""
    return decode(*encode(x, vector, static.view(-1, 1)), vector, x.shape[-1], static.view(-1, 1)).double()


def dense_attention(
    filled: Filled,
    layer: int,
    q: Tensor,
    counts: Sequence[int],
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Of q, the rows' last so many tokens, as decoding and prefilling must do it: means and lse in float64."""
    scales, vectors = filled.scales.layer(layer), filled.layout.kv_format
    means, sums = torch.empty(q.shape, dtype=torch.float64), torch.empty(q.shape[:2], dtype=torch.float64)
    at = 0
    for row, count in enumerate(counts):
        keys, values = filled.keys[layer][row], filled.values[layer][row]
        if scales.key_mean is not None and not vectors.key.is_raw:
            keys = keys - scales.key_mean
        keys, values = remembered(keys, vectors.key, scales.key), remembered(values, vectors.value, scales.value)
        for place in range(at, at + count):
            last = filled.lengths[row] - count + place - at
            first = 0 if window is None else max(0, last + 1 - window)
            for head in range(q.shape[1]):
                kv_head = head // (q.shape[1] // filled.layout.kv_heads)
                scores = keys[first : last + 1, kv_head] @ q[place, head].double()
                scores = scores * (filled.layout.head_size**-0.5 if softmax_scale is None else softmax_scale)
                sums[place, head] = scores.exp().sum().log()
                means[place, head] = scores.softmax(0) @ values[first : last + 1, kv_head]
        at += count
    return means, sums


def queries(filled: Filled, tokens: int, heads: int, dtype: torch.dtype = torch.float32, seed: int = 7) -> Tensor:
    """Of the right size."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, heads, filled.layout.head_size, generator=generator).to(dtype)


def assert_near(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], tolerance: float) -> None:
    """Means by their relative L2 error, over all and in each query; lse by the largest difference."""
    mean, exact = found[0].double().cpu(), wanted[0].double().cpu()
    assert bool(mean.isfinite().all())
    assert float((mean - exact).norm() / exact.norm()) <= tolerance
    assert float(((mean - exact).norm(dim=-1) / exact.norm(dim=-1)).max()) <= 4 * tolerance
    assert float((found[1].double().cpu() - wanted[1].double().cpu()).abs().max()) <= 4 * tolerance
