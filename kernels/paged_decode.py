"""One new token for each row: attention of its query over all keys of the row's pages.

q [rows, heads, head_size] → out of the same shape and dtype, lse float32 [rows, heads] = log Σ exp(score), in natural
units and, where a scale set takes a mean off the keys, relative to the keys as stored. Reads every visible key and
value once, `token_bytes` each, and little else: bandwidth-bound but for the 4-bit formats, whose unpacking costs more
than their reading. On a GPU a row is split over several blocks where rows and heads are too few to fill it; a second
kernel merges the parts by their lse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.aot import CompileCase
from kernels.attention import (
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
    narrowed,
    page_constants,
    page_signature,
    processors,
    rotated,
    store_result,
)
from kernels.dispatch import IS_INTERPRETED, implementation, jit, tl, triton
from kernels.errors import InvalidArgument
from kernels.formats import KvFormat
from kernels.layout import ALIGNMENT, BLOCK_TOKENS
from kernels.native import calls
from kernels.places import section
from kernels.scales import LayerScales
from kernels.tables import PageTable


def paged_decode_reference(
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
    scale = _checked(q, arena, table, layer, scales, softmax_scale, window)
    return attention_reference(q, arena, table, layer, scales, scale, window)


def paged_decode(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    *,
    softmax_scale: float | None = None,
    window: int | None = None,
    splits: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Means of values, and the scores' log-sum-exp. A row sees its last `window` tokens, or all. `splits`: over how
    many blocks a row is spread on a GPU; chosen where not given. Raises InvalidArgument."""
    scale = _checked(q, arena, table, layer, scales, softmax_scale, window)
    if splits is not None and (type(splits) is not int or not 1 <= splits <= MOST_SPLITS):
        raise InvalidArgument("splits", splits, f"between 1 and {MOST_SPLITS}, or None")
    vectors = table.layout.kv_format
    by = implementation(arena, vectors, has_native=True)
    if by == "native":
        return calls.attention(q, arena, table, layer, scales, scale, window)
    if by == "torch" and arena.is_cuda:
        return attention_reference(q, arena, table, layer, scales, scale, window)
    turned = rotated(q) if vectors.key.is_rotated else q
    if by == "triton":
        out, lse = _on_gpu(turned, arena, table, layer, scales, scale, window, splits)
    else:
        out, lse = _on_cpu(turned, arena, table, layer, scales, scale, window)
    return (rotated(out, inverse=True) if vectors.value.is_rotated else out).to(q.dtype), lse


def _checked(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float | None,
    window: int | None,
) -> float:
    if table.most_queries != 1:
        raise InvalidArgument("table", f"{table.most_queries} queries for a row", "one query for each row")
    return attention_checked(q, arena, table, layer, scales, softmax_scale, window)


# On a CPU without a compiler

CHUNK_VECTORS = 16_384  # keys decoded at once over all rows and heads: 4 MiB of float32 at a head size of 64


@dataclass(frozen=True, slots=True)
class _Span:
    """What one row sees, counted from the begin of `first_page`: tokens from `begin` up to `end`."""

    row: int
    first_page: int
    begin: int
    end: int


def _on_cpu(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """All rows of a band at once, chunk of pages after chunk, in float32."""
    keep_freed_memory()
    layout = table.layout
    queries = (q.float() * softmax_scale).unflatten(1, (layout.kv_heads, -1))
    bands = _bands(_spans(table.row_lengths, layout.block_tokens, window))
    if len(bands) == 1:
        out, lse = _band_attended(queries, arena, table, layer, scales, bands[0])
        return out.flatten(1, 2), lse.flatten(1)
    out, lse = torch.empty_like(queries), torch.empty_like(queries[..., 0])
    for band in bands:
        rows = torch.tensor([span.row for span in band])
        out[rows], lse[rows] = _band_attended(queries[rows], arena, table, layer, scales, band)
    return out.flatten(1, 2), lse.flatten(1)


def _spans(lengths: Sequence[int], block_tokens: int, window: int | None) -> list[_Span]:
    """Pages that lie outside a window altogether are not read."""
    spans = []
    for row, length in enumerate(lengths):
        first = max(0, length - window) if window else 0
        page = first // block_tokens
        spans.append(_Span(row, page, first - page * block_tokens, length - page * block_tokens))
    return spans


def _bands(spans: list[_Span]) -> list[list[_Span]]:
    """Rows that are computed together: none waits for one more than twice as long. In order, if it is one band."""
    if max(span.end for span in spans) <= 2 * min(span.end for span in spans):
        return [spans]
    bands: list[list[_Span]] = []
    for span in sorted(spans, key=lambda span: -span.end):
        if not bands or span.end * 2 < bands[-1][0].end:
            bands.append([])
        bands[-1].append(span)
    return bands


def _band_attended(
    queries: Tensor, arena: Tensor, table: PageTable, layer: int, scales: LayerScales, band: list[_Span]
) -> tuple[Tensor, Tensor]:
    """Queries [rows, kv_heads, group, head_size], scaled, of the band's rows."""
    layout, block = table.layout, table.layout.block_tokens
    places = _band_pages(table, band) // ALIGNMENT
    step = max(1, CHUNK_VECTORS // (len(band) * layout.vectors))
    result = None
    for first in range(0, places.shape[1], step):
        chunk = places[:, first : first + step]
        inside = _Inside.of(band, first * block, chunk.shape[1] * block)
        keys, key_scale = gathered(arena, layout, chunk, layer, section(layout, "key"), scales.key)
        scores = queries @ inside.cut(keys).transpose(-1, -2)
        if key_scale is not None:
            scores *= inside.cut(key_scale).transpose(-1, -2)
        values, value_scale = gathered(arena, layout, chunk, layer, section(layout, "value"), scales.value)
        if inside.hidden is not None:
            inside.hide(scores, values, value_scale)
        value_scale = None if value_scale is None else inside.cut(value_scale)
        result = merged(result, attended(scores, inside.cut(values), value_scale))
    assert result is not None
    return result


def _band_pages(table: PageTable, band: list[_Span]) -> Tensor:
    """[rows, most pages of a row]; a row that has fewer goes on with some of its own."""
    most = -(-max(span.end for span in band) // table.layout.block_tokens)
    if len(band) == table.rows and not any(span.first_page for span in band):
        return table.pages[:, :most]
    rows = torch.tensor([span.row for span in band]).unsqueeze(1)
    columns = torch.tensor([span.first_page for span in band]).unsqueeze(1) + torch.arange(most)
    return table.pages[rows, columns.clamp_max_(table.pages.shape[1] - 1)]


@dataclass(frozen=True, slots=True)
class _Inside:
    """Which tokens of a chunk rows see: all the same ones (a slice), or each its own (`hidden` [rows, tokens])."""

    low: int
    high: int
    hidden: Tensor | None

    @classmethod
    def of(cls, band: list[_Span], start: int, tokens: int) -> _Inside:
        begins, ends = {max(span.begin - start, 0) for span in band}, {min(span.end - start, tokens) for span in band}
        if len(begins) == len(ends) == 1:
            return cls(min(begins), max(ends), None)
        bounds = torch.tensor([(span.begin, span.end) for span in band]) - start
        token = torch.arange(tokens)
        return cls(0, tokens, (token < bounds[:, :1]) | (token >= bounds[:, 1:]))

    def cut(self, x: Tensor) -> Tensor:
        """Of [..., tokens, size], if it is not one for all tokens."""
        return x if x.shape[-2] == 1 else x[..., self.low : self.high, :]

    def hide(self, scores: Tensor, values: Tensor, value_scale: Tensor | None) -> None:
        """Unseen tokens count nothing, whatever their bytes say: 0 · NaN would be NaN."""
        assert self.hidden is not None
        hidden = self.hidden.unsqueeze(1)
        scores.masked_fill_(hidden.unsqueeze(1), UNSEEN)
        vectors = hidden.expand(values.shape[:-1]).flatten().nonzero().squeeze(-1)
        values.view(-1, values.shape[-1]).index_fill_(0, vectors, 0.0)
        if value_scale is not None and value_scale.shape[-2] != 1:
            value_scale.masked_fill_(hidden.unsqueeze(-1), 0.0)


# On a GPU

MOST_SPLITS = 64
_BLOCKS_AT_ONCE = 2  # of the decode kernel on one multiprocessor: as many as fit in any format
_TOKENS_WORTH_A_SPLIT = 256  # less is read in the time that a block needs to begin and to merge


def split_count(rows: int, kv_heads: int, longest: int, processors: int) -> int:
    """Over how many blocks a row is spread: the fewest that come within a tenth of the best share of a GPU kept busy,
    as far as a row is long enough. Only what the host knows goes in, so nobody waits for the GPU."""
    places = processors * _BLOCKS_AT_ONCE
    most = max(1, min(MOST_SPLITS, longest // _TOKENS_WORTH_A_SPLIT))

    def busy(splits: int) -> float:
        blocks = rows * kv_heads * splits
        return blocks / (-(-blocks // places) * places)

    wanted = 0.9 * max(busy(splits) for splits in range(1, most + 1))
    return next(splits for splits in range(1, most + 1) if busy(splits) >= wanted)


@jit
def _decode_kernel(  # type: ignore[no-untyped-def]
    q, out, lse, arena, pages, lengths, key_scales, value_scales,
    score_scale, most_pages, window, layer_at, key_scales_at, value_codes_at, value_scales_at,
    KEY: tl.constexpr, VALUE: tl.constexpr, KEY_BYTES: tl.constexpr, KEY_SCALE_BYTES: tl.constexpr,
    VALUE_BYTES: tl.constexpr, VALUE_SCALE_BYTES: tl.constexpr, BLOCK_TOKENS: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, COMPUTE: tl.constexpr, GROUP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """One block: one row, one KV head with all its query heads (GROUP of M), one split of the row's tokens. `out` and
    `lse` are the result's where there is one split, [rows, heads, splits, …] where there are more."""
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    length = tl.load(lengths + row)
    begin = 0
    if WINDOWED:
        begin = tl.maximum(length - window, 0)
    first = begin // BLOCK_TOKENS * BLOCK_TOKENS  # pages outside the window are not read
    step = tl.cdiv(tl.cdiv(length - first, N), splits) * N
    start = first + split * step
    stop = tl.minimum(start + step, length)

    member = tl.arange(0, M)
    is_member = member < GROUP
    vectors = (row * tl.num_programs(1) + head) * GROUP + member
    queries = load_queries(q, vectors, is_member, D, BLOCK_D, COMPUTE)
    key_scale, value_scale = tl.load(key_scales + head), tl.load(value_scales + head)
    best = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, BLOCK_D), tl.float32)
    pages += row.to(tl.int64) * most_pages
    for at in range(start, stop, N):
        tokens = at + tl.arange(0, N)
        inside = tokens < stop
        if WINDOWED:
            inside &= tokens >= begin
        best, total, acc = attend_tile(
            queries, best, total, acc, tokens, inside, inside[None, :],
            arena, pages, head, layer_at, key_scales_at, value_codes_at, value_scales_at,
            key_scale, value_scale, score_scale,
            KEY, VALUE, KEY_BYTES, KEY_SCALE_BYTES, VALUE_BYTES, VALUE_SCALE_BYTES, BLOCK_TOKENS, D, BLOCK_D, True,
        )  # fmt: skip
    store_result(out, lse, vectors * splits + split, is_member, best, total, acc, D, BLOCK_D)


@jit
def _merge_kernel(  # type: ignore[no-untyped-def]
    parts, part_lses, out, lse, splits, D: tl.constexpr, BLOCK_D: tl.constexpr, SPLITS: tl.constexpr
):  # fmt: skip
    """One block: one query head of one row. A split that saw nothing has an lse of -inf, hence no share."""
    vector = tl.program_id(0).to(tl.int64)
    split, d = tl.arange(0, SPLITS), tl.arange(0, BLOCK_D)
    lses = tl.load(part_lses + vector * splits + split, mask=split < splits, other=-float("inf"))
    best = tl.max(lses, axis=0)  # finite: each row sees a token
    shares = tl.exp(lses - best)
    total = tl.sum(shares, axis=0)
    at = (vector * splits + split)[:, None] * D + d[None, :]
    means = tl.load(parts + at, mask=(split < splits)[:, None] & (d < D)[None, :], other=0.0)
    merged_mean = tl.sum(means * shares[:, None], axis=0) / total
    tl.store(out + vector * D + d, narrowed(merged_mean, out.dtype.element_ty), mask=d < D)
    tl.store(lse + vector, best + tl.log(total))


def _on_gpu(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float,
    window: int | None,
    splits: int | None,
) -> tuple[Tensor, Tensor]:
    layout, (rows, heads, size) = table.layout, q.shape
    if splits is None:
        reach = min(table.longest, window + layout.block_tokens) if window else table.longest
        splits = split_count(rows, layout.kv_heads, reach, processors(arena.device))
    is_split = splits > 1
    out = torch.empty_like(q, dtype=torch.float32 if layout.kv_format.value.is_rotated else q.dtype)
    lse = torch.empty(rows, heads, dtype=torch.float32, device=q.device)
    parts = torch.empty(rows, heads, splits, size, dtype=torch.float32, device=q.device) if is_split else out
    part_lses = torch.empty(rows, heads, splits, dtype=torch.float32, device=q.device) if is_split else lse
    constants, options = _constants(layout.kv_format, size, layout.block_tokens, heads // layout.kv_heads, q.dtype)
    _decode_kernel[(rows, layout.kv_heads, splits)](
        q, parts, part_lses, arena, table.pages, table.lengths, scales.key, scales.value,
        softmax_scale * LOG2_E, table.pages.shape[1], window or 0, layer * layout.layer_bytes,
        layout.key_scales_at, layout.value_codes_at, layout.value_scales_at,
        **constants, WINDOWED=window is not None, **options,
    )  # fmt: skip
    if is_split:
        slots, block = triton.next_power_of_2(splits), triton.next_power_of_2(size)
        _merge_kernel[(rows * heads,)](parts, part_lses, out, lse, splits, D=size, BLOCK_D=block, SPLITS=slots, **FUSED)
    return out, lse


def _constants(
    kv_format: KvFormat, head_size: int, block_tokens: int, group: int, dtype: torch.dtype
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of `_decode_kernel`, and with how many warps and stages it is launched."""
    compute = compute_type(kv_format, dtype)
    tokens, options = _tile(head_size, compute == tl.float32)
    own = {"COMPUTE": compute, "GROUP": group, "M": max(SMALLEST_DOT, triton.next_power_of_2(group)), "N": tokens}
    return page_constants(kv_format, head_size, block_tokens) | own, options


def _tile(head_size: int, is_wide: bool) -> tuple[int, dict[str, Any]]:
    """Tokens of a tile, and its launch. 64 elements of keys and as many of values for a thread: with more, formats that
    are unpacked spill. Five stages are two tiles on their way (addresses come first, from the page table): 64 KiB of
    bf16 for a block, three of which fit a multiprocessor; a third tile would leave room for two. float32: for tests."""
    if is_wide or IS_INTERPRETED:
        return SMALLEST_DOT, {"num_warps": 4, "num_stages": 1} | FUSED
    return max(32, 8192 // triton.next_power_of_2(head_size)), {"num_warps": 4, "num_stages": 5} | FUSED


def compile_cases(head_size: int, kv_format: KvFormat, group: int = 4) -> Iterator[CompileCase]:
    """What is compiled ahead of time. What does not depend on the format (windows, merging), for one of them."""
    dtype, kind = (torch.float32, "*fp32") if kv_format.key.name == "fp32" else (torch.bfloat16, "*bf16")
    constants, options = _constants(kv_format, head_size, BLOCK_TOKENS, group, dtype)
    forms = [("", "*fp32", False)]  # what is written, and whether there is a window
    if kv_format.name == "bf16":
        forms += [(" windowed", "*fp32", True), (" unsplit", kind, False)]
    for form, out, windowed in forms:
        yield CompileCase(
            name=f"paged_decode {kv_format.name} {head_size}{form}",
            kernel=_decode_kernel,
            signature={"q": kind, "out": out} | page_signature(),
            constexprs=constants | {"WINDOWED": windowed},
            options=options,
            aligned=PAGE_ALIGNED,
        )
    if kv_format.name == "bf16":
        yield CompileCase(
            name=f"paged_decode merge {head_size}",
            kernel=_merge_kernel,
            signature={"parts": "*fp32", "part_lses": "*fp32", "out": kind, "lse": "*fp32", "splits": "i32"},
            constexprs={"D": head_size, "BLOCK_D": triton.next_power_of_2(head_size), "SPLITS": MOST_SPLITS},
            options=FUSED,
        )
