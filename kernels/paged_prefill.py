"""A chunk of new tokens for each row: causal attention over everything in the row's pages, the chunk's own tokens too.

q [tokens, heads, head_size], the rows' queries one after the other as `table.queries` says → out of the same shape and
dtype, lse float32 [tokens, heads]. Query i of a row's n is the token at position length - n + i; it sees the keys up to
its own position and, with a window, the last `window` of those. The chunk was written before (`kv_write`) and is read
back as the format remembers it: a prefix that is found in the cache, one that is computed and one that is computed in
pieces give the same numbers. Compute-bound; on a GPU most keys and values come from the L2 cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kernels.aot import CompileCase
from kernels.attention import (
    FEWEST_ROWS,
    FUSED,
    LOG2_E,
    PAGE_ALIGNED,
    SMALLEST_DOT,
    UNSEEN,
    attend_tile,
    attended,
    attention_checked,
    attention_reference,
    compute_type,
    gathered,
    keep_freed_memory,
    load_queries,
    merged,
    page_constants,
    page_signature,
    rotated,
    store_result,
)
from kernels.dispatch import IS_INTERPRETED, implementation, jit, tl, triton
from kernels.formats import KvFormat
from kernels.layout import ALIGNMENT, BLOCK_TOKENS, PageLayout
from kernels.native import calls
from kernels.places import section
from kernels.scales import LayerScales
from kernels.tables import PageTable


def paged_prefill_reference(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Row by row in plain float32."""
    scale = attention_checked(q, arena, table, layer, scales, softmax_scale, window)
    return attention_reference(q, arena, table, layer, scales, scale, window)


def paged_prefill(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Means of values, and the scores' log-sum-exp. Raises InvalidArgument."""
    scale = attention_checked(q, arena, table, layer, scales, softmax_scale, window)
    vectors = table.layout.kv_format
    by = implementation(arena, vectors, has_native=True)
    if by == "native":
        return calls.attention(q, arena, table, layer, scales, scale, window)
    if by == "torch" and arena.is_cuda:
        return attention_reference(q, arena, table, layer, scales, scale, window)
    turned = rotated(q) if vectors.key.is_rotated else q
    run = _on_gpu if by == "triton" else _on_cpu
    out, lse = run(turned, arena, table, layer, scales, scale, window)
    return (rotated(out, inverse=True) if vectors.value.is_rotated else out).to(q.dtype), lse


# On a CPU without a compiler

CHUNK_VECTORS = 16_384  # of one row, decoded at once over all heads: 2 × 4 MiB of float32 at a head size of 64
TILE_QUERIES = 64


def _on_cpu(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """Row by row in float32."""
    keep_freed_memory()
    out, lse = torch.empty_like(q, dtype=torch.float32), torch.empty(q.shape[:2])
    begin = 0
    for row, count in enumerate(table.row_queries):
        mine = slice(begin, begin + count)
        queries = (q[mine].float() * softmax_scale).unflatten(1, (table.layout.kv_heads, -1)).transpose(0, 1)
        for at, (means, sums) in _row_attended(queries.contiguous(), arena, table, row, layer, scales, window):
            tile = slice(begin + at, begin + at + means.shape[1])
            out[tile] = means.transpose(0, 1).flatten(1, 2)
            lse[tile] = sums.transpose(0, 1).flatten(1, 2)
        begin += count
    return out, lse


def _row_attended(
    queries: Tensor, arena: Tensor, table: PageTable, row: int, layer: int, scales: LayerScales, window: int | None
) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """Queries [kv_heads, tokens, group, head_size], scaled, of one row: each tile's begin with its means and lse. Tiles
    are computed over what they see of one chunk of pages after another.

    Where tiles and chunks end depends on positions alone, and a tile's keys are filled up to its end: so a token's
    result is the same bits wherever the chunk of new tokens began and ended that it came in.
    """
    length, group = table.row_lengths[row], queries.shape[2]
    first = length - queries.shape[1]  # the position of the first query
    tile_tokens, chunk = _raster(table.layout)
    tiles = _tiles(first, length, tile_tokens, window)
    results: dict[int, tuple[Tensor, Tensor]] = {}
    seen = tiles[0].low
    for start in range(seen // chunk * chunk, length, chunk):
        begin, stop = max(start, seen), min(start + chunk, length)
        keys, values = (
            functional.pad(x, (0, 0, 0, -len(x[0]) % tile_tokens))
            for x in _decoded(arena, table, row, layer, scales, begin, stop)
        )
        for tile in tiles:
            low, high = max(tile.low, begin), min(tile.high, start + chunk)
            if low < high:
                mine = queries[:, tile.begin - first : tile.end - first]
                mine = functional.pad(mine, (0, 0, 0, 0, 0, max(0, FEWEST_ROWS - mine.shape[1])))
                scores = mine.flatten(1, 2) @ keys[:, low - begin : high - begin].transpose(1, 2)
                _mask(scores.view(*mine.shape[:3], -1), tile.begin, low, window)
                part = attended(scores, values[:, low - begin : high - begin], None)
                results[tile.begin] = merged(results.get(tile.begin), part)
    for tile in tiles:
        means, sums = (x.unflatten(1, (-1, group))[:, : tile.end - tile.begin] for x in results[tile.begin])
        yield tile.begin - first, (means, sums)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Queries by their positions, and the keys that are looked at for them: all they see, and some they do not."""

    begin: int
    end: int
    low: int
    high: int


def _raster(layout: PageLayout) -> tuple[int, int]:
    """Tokens of a tile and of a chunk, which is so many tiles."""
    tile = max(TILE_QUERIES, layout.block_tokens)
    return tile, max(1, CHUNK_VECTORS // layout.kv_heads // tile) * tile


def _tiles(first: int, length: int, tokens: int, window: int | None) -> list[_Tile]:
    """The positions from `first` on, cut where `tokens` divides them."""
    cuts = [first, *range((first // tokens + 1) * tokens, length, tokens), length]
    tiles = []
    for begin, end in pairwise(cuts):
        raster = begin // tokens * tokens
        low = max(0, raster - window + 1) // tokens * tokens if window else 0
        tiles.append(_Tile(begin, end, low, raster + tokens))
    return tiles


def _decoded(
    arena: Tensor, table: PageTable, row: int, layer: int, scales: LayerScales, start: int, stop: int
) -> tuple[Tensor, Tensor]:
    """Keys and values [kv_heads, tokens, head_size] from `start`, where a page begins, up to `stop`. Scaled here: there
    are more scores than elements."""
    layout = table.layout
    pages = table.pages[row : row + 1, start // layout.block_tokens : -(-stop // layout.block_tokens)] // ALIGNMENT
    found = []
    for part, static_scale in ((section(layout, "key"), scales.key), (section(layout, "value"), scales.value)):
        units, scale = gathered(arena, layout, pages, layer, part, static_scale)
        found.append((units if scale is None else units.mul_(scale))[0, :, : stop - start])
    return found[0], found[1]


def _mask(scores: Tensor, position: int, key: int, window: int | None) -> None:
    """Hide in scores [kv_heads, tokens, group, keys] what a token does not see. The first token is at `position`, the
    first key at `key`; keys up to the first token's own are seen by all, but for a window."""
    tokens, keys = scores.shape[1], scores.shape[3]
    common = 0 if window else max(0, min(position + 1 - key, keys))
    if common == keys:
        return
    behind = torch.arange(position, position + tokens)[:, None] - torch.arange(key + common, key + keys)
    is_hidden = (behind < 0) | (behind >= window) if window else behind < 0
    scores[..., common:] += torch.where(is_hidden, UNSEEN, 0.0)[:, None]


# On a GPU


@jit
def _prefill_kernel(  # type: ignore[no-untyped-def]
    q, out, lse, arena, pages, lengths, queries_at, key_scales, value_scales,
    score_scale, most_pages, window, layer_at, key_scales_at, value_codes_at, value_scales_at,
    KEY: tl.constexpr, VALUE: tl.constexpr, KEY_BYTES: tl.constexpr, KEY_SCALE_BYTES: tl.constexpr,
    VALUE_BYTES: tl.constexpr, VALUE_SCALE_BYTES: tl.constexpr, BLOCK_TOKENS: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, COMPUTE: tl.constexpr, GROUP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """One block: one row, one KV head, M queries: GROUP heads of each of M / GROUP tokens or so."""
    tile, head, row = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)  # the longest first
    begin = tl.load(queries_at + row)
    count = tl.load(queries_at + row + 1) - begin
    if tile * M >= count * GROUP:
        return
    length = tl.load(lengths + row)
    member = tile * M + tl.arange(0, M)
    token = member // GROUP
    is_member = token < count
    position = length - count + token
    vectors = ((begin + token) * tl.num_programs(1) + head) * GROUP + member % GROUP
    queries = load_queries(q, vectors, is_member, D, BLOCK_D, COMPUTE)
    key_scale, value_scale = tl.load(key_scales + head), tl.load(value_scales + head)
    best = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, BLOCK_D), tl.float32)
    pages += row.to(tl.int64) * most_pages

    earliest = length - count + tile * M // GROUP
    stop = tl.minimum(length, length - count + (tile * M + M - 1) // GROUP + 1)
    start = 0
    common = (earliest + 1) // N * N  # tiles before this are seen by every query
    if WINDOWED:
        start = tl.maximum(earliest - window + 1, 0) // BLOCK_TOKENS * BLOCK_TOKENS  # pages outside are not read
        common = start
    for at in range(start, common, N):
        tokens = at + tl.arange(0, N)
        best, total, acc = attend_tile(
            queries, best, total, acc, tokens, tokens < stop, tokens[None, :] < stop,
            arena, pages, head, layer_at, key_scales_at, value_codes_at, value_scales_at,
            key_scale, value_scale, score_scale,
            KEY, VALUE, KEY_BYTES, KEY_SCALE_BYTES, VALUE_BYTES, VALUE_SCALE_BYTES, BLOCK_TOKENS, D, BLOCK_D, False,
        )  # fmt: skip
    for at in range(common, stop, N):
        tokens = at + tl.arange(0, N)
        seen = tokens[None, :] <= position[:, None]
        if WINDOWED:
            seen &= tokens[None, :] > position[:, None] - window
        best, total, acc = attend_tile(
            queries, best, total, acc, tokens, tokens < stop, seen,
            arena, pages, head, layer_at, key_scales_at, value_codes_at, value_scales_at,
            key_scale, value_scale, score_scale,
            KEY, VALUE, KEY_BYTES, KEY_SCALE_BYTES, VALUE_BYTES, VALUE_SCALE_BYTES, BLOCK_TOKENS, D, BLOCK_D, True,
        )  # fmt: skip
    store_result(out, lse, vectors, is_member, best, total, acc, D, BLOCK_D)


def _on_gpu(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    layout, group = table.layout, q.shape[1] // table.layout.kv_heads
    out = torch.empty_like(q, dtype=torch.float32 if layout.kv_format.value.is_rotated else q.dtype)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    most = table.most_queries * group
    constants, options = _constants(layout.kv_format, layout.head_size, layout.block_tokens, group, q.dtype, most)
    tiles = triton.cdiv(most, constants["M"])
    _prefill_kernel[(tiles, layout.kv_heads, table.rows)](
        q, out, lse, arena, table.pages, table.lengths, table.queries, scales.key, scales.value,
        softmax_scale * LOG2_E, table.pages.shape[1], window or 0, layer * layout.layer_bytes,
        layout.key_scales_at, layout.value_codes_at, layout.value_scales_at,
        **constants, WINDOWED=window is not None, **options,
    )  # fmt: skip
    return out, lse


def _constants(
    kv_format: KvFormat, head_size: int, block_tokens: int, group: int, dtype: torch.dtype, most: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of `_prefill_kernel`, and with how many warps and stages it is launched, where a KV head has at `most` so many
    queries in a row."""
    compute = compute_type(kv_format, dtype)
    queries, tokens, options = _tile(head_size, compute == tl.float32, most)
    own = {"COMPUTE": compute, "GROUP": group, "M": queries, "N": tokens}
    return page_constants(kv_format, head_size, block_tokens) | own, options


def _tile(head_size: int, is_wide: bool, most: int) -> tuple[int, int, dict[str, Any]]:
    """Queries and tokens of a tile, and its launch. Two warpgroups, each with 64 queries (wgmma's fewest), or one where
    there are no more. Their means stay in registers: 64 of a thread's at a head size of 128, and 128 at 256, where a
    tile has half as many tokens so that next to nothing spills. Three stages: a tile is on its way while one is
    computed."""
    if is_wide or IS_INTERPRETED:
        return SMALLEST_DOT, SMALLEST_DOT, {"num_warps": 4, "num_stages": 1} | FUSED
    queries = 64 if most <= 64 else 128
    return queries, 64 if head_size <= 128 else 32, {"num_warps": queries // 16, "num_stages": 3} | FUSED


def compile_cases(head_size: int, kv_format: KvFormat, group: int = 4) -> Iterator[CompileCase]:
    """What is compiled ahead of time. What does not depend on the format (windows, few queries), for one of them."""
    dtype, kind = (torch.float32, "*fp32") if kv_format.key.name == "fp32" else (torch.bfloat16, "*bf16")
    out = "*fp32" if kv_format.value.is_rotated else kind
    for what, most, windowed in ("", 4096, False), (" windowed", 4096, True), (" few", 64, False):
        if what and kv_format.name != "bf16":
            continue
        constants, options = _constants(kv_format, head_size, BLOCK_TOKENS, group, dtype, most)
        yield CompileCase(
            name=f"paged_prefill {kv_format.name} {head_size}{what}",
            kernel=_prefill_kernel,
            signature={"q": kind, "out": out, "queries_at": "*i32"} | page_signature(),
            constexprs=constants | {"WINDOWED": windowed},
            options=options,
            aligned=PAGE_ALIGNED,
        )
