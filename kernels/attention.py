"""What decoding and prefilling have in common: what they refuse, where a vector lies, one step of the online softmax.

Both read keys and values from pages only, tile by tile, in any format: units go into the matrix products, a vector's
scale is multiplied into its score (keys) or its weight (values), so it costs one product for each vector instead of one
for each element. What is read beyond a row's end is zeroed or masked: a page's unused slots may hold anything.

No kernel here imports another; the ops are `paged_decode.py` and `paged_prefill.py`.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.codecs.rounding import to_bfloat16
from kernels.dispatch import HAS_TRITON, IS_INTERPRETED, implementation, jit, tl, triton
from kernels.errors import InvalidArgument
from kernels.formats import KvFormat, VectorFormat
from kernels.fwht import fwht, fwht_reference
from kernels.layout import ALIGNMENT, PageLayout
from kernels.places import Section
from kernels.scales import LayerScales
from kernels.tables import PageTable, arena_checked
from kernels.vectors import decode, load_vectors, units_and_scale

LOG2_E = 1.4426950408889634
FEWEST_ROWS = 4  # of a CPU's matrix product: fewer go through other code, which adds up in another order
SMALLEST_DOT = 16  # rows and columns of Triton's smallest matrix product


def attention_checked(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float | None,
    window: int | None,
) -> float:
    """The softmax scale. Raises InvalidArgument, by the argument's name, before any memory is touched."""
    layout = table.layout
    arena_checked(arena, table.reach)
    if q.dtype not in (torch.float32, torch.bfloat16):
        raise InvalidArgument("q", q.dtype, "float32 or bfloat16")
    if q.ndim != 3 or q.shape[0] != table.tokens or q.shape[2] != layout.head_size:
        raise InvalidArgument("q", tuple(q.shape), f"[{table.tokens} queries, heads, {layout.head_size}]")
    if q.shape[1] < 1 or q.shape[1] % layout.kv_heads:
        raise InvalidArgument("q", tuple(q.shape), f"of a whole number of heads for each of {layout.kv_heads} KV heads")
    if not q.is_contiguous():
        raise InvalidArgument("q", f"stride {q.stride()}", "contiguous")
    for name, tensor in (("q", q), ("table", table.pages), ("scales", scales.key), ("scales", scales.value)):
        if tensor.device != arena.device:
            raise InvalidArgument(name, str(tensor.device), f"on the arena's device, {arena.device}")
    for vectors in (scales.key, scales.value):
        if vectors.dtype != torch.float32 or vectors.shape != (layout.kv_heads,):
            raise InvalidArgument("scales", f"{vectors.dtype} {tuple(vectors.shape)}", f"float32 [{layout.kv_heads}]")
    if type(layer) is not int or not 0 <= layer < layout.layers:
        raise InvalidArgument("layer", layer, f"between 0 and {layout.layers - 1}")
    if window is not None and (type(window) is not int or window < 1):
        raise InvalidArgument("window", window, "at least 1 token, or None")
    if softmax_scale is None:
        return float(layout.head_size**-0.5)
    if type(softmax_scale) not in (float, int) or not isfinite(softmax_scale):
        raise InvalidArgument("softmax_scale", softmax_scale, "a finite number, or None")
    return float(softmax_scale)


def rotated(x: Tensor, inverse: bool = False) -> Tensor:
    """Queries as the keys they meet are, or means as the values were before. On a CPU in float32 by one matrix product:
    as a transform it would be dozens of small operations."""
    if implementation(x) == "triton":
        return fwht(x, inverse)
    rows = x.float().flatten(0, -2)
    filled = pad(rows, (0, 0, 0, max(0, FEWEST_ROWS - len(rows))))
    return (filled @ _rotation(x.shape[-1], inverse).to(x.device))[: len(rows)].view(x.shape)


@lru_cache
def _rotation(head_size: int, inverse: bool) -> Tensor:
    return fwht_reference(torch.eye(head_size), inverse)


# The reference


def attention_reference(
    q: Tensor,
    arena: Tensor,
    table: PageTable,
    layer: int,
    scales: LayerScales,
    softmax_scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """Row by row in plain float32: decode all that the row may see, softmax, sum. Both ops' reference."""
    group = q.shape[1] // table.layout.kv_heads
    outs, sums = [], []
    rows = zip(q.float().split(list(table.row_queries)), table.pages, table.row_lengths, strict=True)
    for queries, pages, length in rows:
        keys, values = (
            decode(*stored, vector, table.layout.head_size, static).repeat_interleave(group, dim=0)
            for stored, vector, static in _stored(arena, table.layout, pages, layer, length, scales)
        )
        position = torch.arange(length - len(queries), length, device=q.device)[:, None]
        key = torch.arange(length, device=q.device)
        is_seen = (key <= position) & (key > position - (window or length))
        scores = queries.transpose(0, 1) @ keys.transpose(1, 2) * softmax_scale
        scores = scores.masked_fill(~is_seen, -torch.inf)
        outs.append((scores.softmax(dim=-1) @ values).transpose(0, 1))
        sums.append(scores.logsumexp(dim=-1).transpose(0, 1))
    return torch.cat(outs).to(q.dtype), torch.cat(sums)


def _stored(
    arena: Tensor, layout: PageLayout, pages: Tensor, layer: int, length: int, scales: LayerScales
) -> list[tuple[tuple[Tensor, Tensor], VectorFormat, Tensor]]:
    """Keys' and values' codes and scales [kv_heads, length, bytes], page after page."""
    begins = [page + layer * layout.layer_bytes for page in pages.tolist()]

    def section(at: int, size: int) -> Tensor:
        shape = (layout.kv_heads, layout.block_tokens, size)
        found = [arena[begin + at : begin + at + layout.vectors * size].view(shape) for begin in begins]
        return torch.cat(found, dim=1)[:, :length]

    keys = section(0, layout.key_code_bytes), section(layout.key_scales_at, layout.key_scale_bytes)
    values = (
        section(layout.value_codes_at, layout.value_code_bytes),
        section(layout.value_scales_at, layout.value_scale_bytes),
    )
    vectors = layout.kv_format
    return [(keys, vectors.key, scales.key.view(-1, 1, 1)), (values, vectors.value, scales.value.view(-1, 1, 1))]


# On a CPU


@lru_cache
def keep_freed_memory() -> None:
    """Once in a process. glibc hands freed memory back to the system above a threshold, and each step would fault its
    pages in again, which took up to five times as long as the step. Freeing one large block raises the threshold to its
    size (`M_MMAP_THRESHOLD` in mallopt(3)); elsewhere it does nothing."""
    torch.empty(31 << 20, dtype=torch.uint8)


def gathered(
    arena: Tensor, layout: PageLayout, places: Tensor, layer: int, part: Section, static_scale: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Units [rows, kv_heads, tokens, head_size] of all slots of pages, and what to scale them with. `places`
    [rows, pages] are where pages begin, in steps of 16 bytes.

    One `index_select` over windows of the arena as long as one head's codes in one page: a memcpy for each, in the
    order in which attention wants them. (Element-wise indices took 3 to 6 times as long, slices and `cat` 10 to 17.)
    """
    begin = layer * layout.layer_bytes
    codes = _windows(arena, layout, places, begin + part.codes_at, part.code_bytes)
    scales = _windows(arena, layout, places, begin + part.scales_at, part.scale_bytes)
    static = static_scale.view(-1, 1, 1) if part.vector.has_static_scale else None
    return units_and_scale(codes, scales, part.vector, layout.head_size, static)


def _windows(arena: Tensor, layout: PageLayout, places: Tensor, at: int, vector_bytes: int) -> Tensor:
    """What lies `at` so many bytes in pages, for all heads: [rows, kv_heads, tokens, vector_bytes]."""
    shape = (places.shape[0], layout.kv_heads, places.shape[1] * layout.block_tokens, vector_bytes)
    width = layout.block_tokens * vector_bytes
    if not width:
        return arena.new_empty(shape)
    index = (places.unsqueeze(1) + _heads(layout.kv_heads, at, width)).flatten()
    return arena.unfold(0, width, ALIGNMENT).index_select(0, index).view(shape)


@lru_cache(maxsize=4096)
def _heads(kv_heads: int, at: int, width: int) -> Tensor:
    """Where each head's windows are in a page, in steps of 16 bytes: [kv_heads, 1]. In every step the same."""
    return torch.arange(at, at + kv_heads * width, width).unsqueeze(1) // ALIGNMENT


UNSEEN = torch.finfo(torch.float32).min  # a score; finite, so that a softmax over nothing but these is no NaN


def attended(scores: Tensor, values: Tensor, value_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores [..., queries, keys], UNSEEN where so, and values [..., keys, size] → means, and lse [..., queries]."""
    weights = scores.softmax(dim=-1)
    lse = scores.amax(dim=-1).sub_(weights.amax(dim=-1).log_())  # the largest weight is 1 / Σ exp(score - best)
    if value_scale is not None:
        weights *= value_scale.transpose(-1, -2)
    return weights @ values, lse


def merged(first: tuple[Tensor, Tensor] | None, second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Attention over two sets of keys, as (means, lse), from attention over each."""
    if first is None:
        return second
    lse = torch.logaddexp(first[1], second[1])
    shares = [(part[1] - lse).exp_().unsqueeze(-1) for part in (first, second)]
    return first[0] * shares[0] + second[0] * shares[1], lse


# On a GPU


def page_constants(kv_format: KvFormat, head_size: int, block_tokens: int) -> dict[str, Any]:
    """Of a kernel that reads pages."""
    return {
        "KEY": kv_format.key.name,
        "VALUE": kv_format.value.name,
        "KEY_BYTES": kv_format.key.code_bytes(head_size),
        "KEY_SCALE_BYTES": kv_format.key.scale_bytes(head_size),
        "VALUE_BYTES": kv_format.value.code_bytes(head_size),
        "VALUE_SCALE_BYTES": kv_format.value.scale_bytes(head_size),
        "BLOCK_TOKENS": block_tokens,
        "D": head_size,
        "BLOCK_D": triton.next_power_of_2(head_size),
    }


def compute_type(kv_format: KvFormat, dtype: torch.dtype) -> Any:
    """What matrix products take: bfloat16, which is exact for every format's units but those of `fp32`."""
    is_wide = dtype == torch.float32 or 32 in (kv_format.key.bits, kv_format.value.bits)
    return tl.float32 if is_wide else tl.bfloat16


# Sums and products may be fused: nobody compares attention's bits. Said aloud, for Triton's default is about to change.
FUSED = {"enable_fp_fusion": True}


def page_signature() -> dict[str, str]:
    """Types of the arguments that both kernels have; `compile_cases` need them, a launch finds them out."""
    pointers = {"lse": "*fp32", "arena": "*u8", "pages": "*i64", "lengths": "*i32"}
    pointers |= {"key_scales": "*fp32", "value_scales": "*fp32", "score_scale": "fp32"}
    return pointers | dict.fromkeys(("most_pages", "window", *PAGE_ALIGNED), "i32")


# Bytes from a page's begin: below 2**31, for no page is larger, and multiples of 16.
PAGE_ALIGNED = ("layer_at", "key_scales_at", "value_codes_at", "value_scales_at")


@lru_cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; 1 where the interpreter stands for one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


if HAS_TRITON:
    INTERPRETED = tl.constexpr(IS_INTERPRETED)


@jit
def product(a, b):  # type: ignore[no-untyped-def]
    """a · b in float32, exactly the products of bfloat16 or float32 numbers. Never of FP8: on Hopper those add up in
    14 bits or so, and a long context loses what it looks for."""
    if INTERPRETED:  # its dot would take the bits of bfloat16 numbers for whole numbers
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b, input_precision="ieee")


@jit
def narrowed(x, TYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """float32 to `TYPE`, half to even."""
    if INTERPRETED and tl.bfloat16 == TYPE:  # whose cast would cut the bits off
        return to_bfloat16(x)
    return x.to(TYPE)


@jit
def load_queries(q, vectors, inside, D: tl.constexpr, BLOCK_D: tl.constexpr, COMPUTE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Queries [M, BLOCK_D], the given vectors of q [vectors, D]; 0 beyond D and where not inside."""
    d = tl.arange(0, BLOCK_D)
    at = vectors[:, None].to(tl.int64) * D + d[None, :]
    return tl.load(q + at, mask=inside[:, None] & (d < D)[None, :], other=0.0).to(COMPUTE)


@jit
def store_result(  # type: ignore[no-untyped-def]
    out, lse, vectors, inside, best, total, acc, D: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """Means and lse of the given vectors; 0 and -inf of those that saw nothing."""
    d = tl.arange(0, BLOCK_D)
    at = vectors[:, None].to(tl.int64) * D + d[None, :]
    mean = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out + at, narrowed(mean, out.dtype.element_ty), mask=inside[:, None] & (d < D)[None, :])
    tl.store(lse + vectors, (best + tl.log2(tl.where(total > 0, total, 1.0))) * 0.6931471805599453, mask=inside)


@jit
def attend_tile(  # type: ignore[no-untyped-def]
    queries, best, total, acc, tokens, inside, seen,
    arena, pages, head, layer_at, key_scales_at, value_codes_at, value_scales_at, key_scale, value_scale, score_scale,
    KEY: tl.constexpr, VALUE: tl.constexpr, KEY_BYTES: tl.constexpr, KEY_SCALE_BYTES: tl.constexpr,
    VALUE_BYTES: tl.constexpr, VALUE_SCALE_BYTES: tl.constexpr, BLOCK_TOKENS: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One step of the online softmax: queries [M, BLOCK_D] over tokens [N] of the row with these pages. `inside`: which
    tokens may be read; `seen` [M, N]: by which query, unless not MASKED. Scores are in units of log 2."""
    # Multiples of 16, which the compiler must know for wide loads: a hint at the load is lost when that is pipelined.
    begins = (tl.load(pages + tokens // BLOCK_TOKENS, mask=inside, other=0) >> 4) * 16 + layer_at  # int64
    vector = head * BLOCK_TOKENS + tokens % BLOCK_TOKENS
    keys, scale = load_vectors(
        arena, begins + vector * KEY_BYTES, begins + key_scales_at + vector * KEY_SCALE_BYTES,
        inside, key_scale, KEY, D, BLOCK_D,
    )  # fmt: skip
    scores = product(queries, tl.trans(keys.to(queries.dtype))) * (scale * score_scale)[None, :]
    if MASKED:
        scores = tl.where(seen, scores, -float("inf"))
    new_best = tl.maximum(best, tl.max(scores, axis=1))
    against = tl.where(new_best == -float("inf"), 0.0, new_best)  # a query that has seen nothing yet
    weights = tl.exp2(scores - against[:, None])
    shrink = tl.exp2(best - against)
    values, scale = load_vectors(
        arena, begins + value_codes_at + vector * VALUE_BYTES, begins + value_scales_at + vector * VALUE_SCALE_BYTES,
        inside, value_scale, VALUE, D, BLOCK_D,
    )  # fmt: skip
    out = product(narrowed(weights * scale[None, :], queries.dtype), values.to(queries.dtype))
    return new_best, total * shrink + tl.sum(weights, axis=1), acc * shrink[:, None] + out
