"""Write pages anew in another format: for a tier with a cheaper format, or when a policy's format changes.

pages of one layout → pages of another of the same model, all layers, keys and values. Each vector is decoded (rotation
undone, its mean added) and encoded again, exactly as `kv_write` would have, had it been given what the first format
remembered. What slots say that nobody has written is not specified, but it is finite. Bandwidth-bound: one read, one
write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from kernels.aot import CompileCase
from kernels.dispatch import implementation, jit, tl, triton
from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS, KvFormat
from kernels.fwht import rotate_rows
from kernels.layout import PageLayout
from kernels.places import Side, gather_bytes, scatter_bytes, section, vector_places
from kernels.scales import ScaleSet
from kernels.tables import arena_checked, offsets_checked
from kernels.vectors import decode, encode, finite_rows, load_vectors, ready_rows, store_vectors

SIDES: tuple[Side, ...] = ("key", "value")


def page_convert_reference(
    arena: Tensor,
    source: PageLayout,
    source_pages: Tensor,
    target: PageLayout,
    target_pages: Tensor,
    source_scales: ScaleSet,
    target_scales: ScaleSet,
) -> None:
    """Layer by layer: decode all vectors of all pages, encode them again."""
    slots = torch.arange(source.block_tokens, device=arena.device)
    for layer in range(source.layers):
        for side in SIDES:
            vectors = _read(arena, source, source_pages + layer * source.layer_bytes, slots, side, source_scales, layer)
            _write(arena, target, target_pages + layer * target.layer_bytes, slots, side, target_scales, layer, vectors)


def _read(
    arena: Tensor, layout: PageLayout, layers_at: Tensor, slots: Tensor, side: Side, scales: ScaleSet, layer: int
) -> Tensor:
    part = section(layout, side)
    codes_at, scales_at = vector_places(layout, part, layers_at.unsqueeze(-1), slots)
    codes = gather_bytes(arena, codes_at, part.code_bytes)
    code_scales = gather_bytes(arena, scales_at, part.scale_bytes)
    decoded = decode(codes, code_scales, part.vector, layout.head_size, _static(scales, layer, side, layout))
    mean = _mean(scales, layer, side, layout)
    return _finite(decoded if mean is None else decoded + mean)


def _write(
    arena: Tensor,
    layout: PageLayout,
    layers_at: Tensor,
    slots: Tensor,
    side: Side,
    scales: ScaleSet,
    layer: int,
    x: Tensor,
) -> None:
    part = section(layout, side)
    mean = _mean(scales, layer, side, layout)
    codes, code_scales = encode(x if mean is None else x - mean, part.vector, _static(scales, layer, side, layout))
    codes_at, scales_at = vector_places(layout, part, layers_at.unsqueeze(-1), slots)
    scatter_bytes(arena, codes_at, codes)
    scatter_bytes(arena, scales_at, code_scales)


def _finite(x: Tensor) -> Tensor:
    """Slots that nobody wrote may hold anything. Zeros stand for what is no number: such a thing is never stored."""
    return x.masked_fill(~x.isfinite().all(dim=-1, keepdim=True), 0.0)


def _static(scales: ScaleSet, layer: int, side: Side, layout: PageLayout) -> Tensor | None:
    if not section(layout, side).vector.has_static_scale:
        return None
    return (scales.keys if side == "key" else scales.values)[layer][:, None]


def _mean(scales: ScaleSet, layer: int, side: Side, layout: PageLayout) -> Tensor | None:
    if side == "value" or scales.key_means is None or layout.kv_format.key.is_raw:
        return None
    return scales.key_means[layer]


@jit
def _page_convert_kernel(  # type: ignore[no-untyped-def]
    arena, sources, targets, source_scale, target_scale, source_mean, target_mean, source_layer, target_layer,
    FROM: tl.constexpr, FROM_ROTATED: tl.constexpr, FROM_CODES_AT: tl.constexpr, FROM_CODE_BYTES: tl.constexpr,
    FROM_SCALES_AT: tl.constexpr, FROM_SCALE_BYTES: tl.constexpr, FROM_MEAN: tl.constexpr,
    TO: tl.constexpr, TO_RAW: tl.constexpr, TO_ROTATED: tl.constexpr, TO_CODES_AT: tl.constexpr,
    TO_CODE_BYTES: tl.constexpr, TO_SCALES_AT: tl.constexpr, TO_SCALE_BYTES: tl.constexpr, TO_MEAN: tl.constexpr,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """One page's N tokens of one head in one layer."""
    page, layer, head = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    slot = tl.arange(0, N)
    d = tl.arange(0, BLOCK_D)
    everything = slot >= 0
    vector = head * N + slot
    of_head = layer * HEADS + head
    begin = tl.load(sources + page) + layer * source_layer
    units, scale = load_vectors(
        arena, begin + FROM_CODES_AT + vector * FROM_CODE_BYTES, begin + FROM_SCALES_AT + vector * FROM_SCALE_BYTES,
        everything, tl.load(source_scale + of_head), FROM, D, BLOCK_D,
    )  # fmt: skip
    x = units.to(tl.float32) * scale[:, None]
    if FROM_ROTATED:
        x = rotate_rows(x, N, D, BLOCK_D, True)
    if FROM_MEAN:
        x = x + tl.load(source_mean + of_head * D + d, mask=d < D, other=0.0)[None, :]
    x, _ = finite_rows(x)
    if TO_MEAN:
        x = x - tl.load(target_mean + of_head * D + d, mask=d < D, other=0.0)[None, :]
    x = ready_rows(x, TO_RAW, TO_ROTATED, N, D, BLOCK_D)
    begin = tl.load(targets + page) + layer * target_layer
    store_vectors(
        arena, begin + TO_CODES_AT + vector * TO_CODE_BYTES, begin + TO_SCALES_AT + vector * TO_SCALE_BYTES,
        everything, x, tl.load(target_scale + of_head), TO, D, N, BLOCK_D,
    )  # fmt: skip


def page_convert(
    arena: Tensor,
    source: PageLayout,
    source_pages: Sequence[int],
    target: PageLayout,
    target_pages: Sequence[int],
    source_scales: ScaleSet,
    target_scales: ScaleSet,
) -> None:
    """Each source page, anew at the target page of the same index. Raises InvalidArgument before anything moves."""
    arena_checked(arena)
    _layouts_checked(source, target)
    for name, scales in (("source_scales", source_scales), ("target_scales", target_scales)):
        _scales_checked(name, scales, source, arena)
    if len(source_pages) != len(target_pages):
        raise InvalidArgument("target_pages", len(target_pages), f"one for each of {len(source_pages)} source pages")
    begins = offsets_checked("source_pages", source_pages, source.page_bytes, arena.numel())
    ends = offsets_checked("target_pages", target_pages, target.page_bytes, arena.numel())
    _apart_checked(begins, source.page_bytes, ends, target.page_bytes)
    if not begins:
        return
    sources = torch.tensor(begins, dtype=torch.int64).to(arena.device, non_blocking=True)
    targets = torch.tensor(ends, dtype=torch.int64).to(arena.device, non_blocking=True)
    if implementation(arena, source.kv_format, target.kv_format) == "torch":
        return page_convert_reference(arena, source, sources, target, targets, source_scales, target_scales)
    for side in SIDES:
        pairs = [_tensors(scales, side) for scales in (source_scales, target_scales)]
        (source_scale, source_mean), (target_scale, target_mean) = pairs
        _page_convert_kernel[(len(begins), source.layers, source.kv_heads)](
            arena, sources, targets, source_scale, target_scale, source_mean, target_mean,
            source.layer_bytes, target.layer_bytes,
            **_constants(source, target, side),
            FROM_MEAN=_mean(source_scales, 0, side, source) is not None,
            TO_MEAN=_mean(target_scales, 0, side, target) is not None,
            enable_fp_fusion=False,
        )  # fmt: skip
    return None


def _tensors(scales: ScaleSet, side: Side) -> tuple[Tensor, Tensor]:
    """A side's static scales, and its means or whatever stands for none."""
    static = scales.keys if side == "key" else scales.values
    return static, static if scales.key_means is None else scales.key_means


def _constants(source: PageLayout, target: PageLayout, side: Side) -> dict[str, str | int | bool]:
    constants: dict[str, str | int | bool] = {
        "HEADS": source.kv_heads,
        "D": source.head_size,
        "BLOCK_D": triton.next_power_of_2(source.head_size),
        "N": source.block_tokens,
    }
    for word, part in (("FROM", section(source, side)), ("TO", section(target, side))):
        constants |= {
            word: part.vector.name,
            f"{word}_ROTATED": part.vector.is_rotated,
            f"{word}_CODES_AT": part.codes_at,
            f"{word}_CODE_BYTES": part.code_bytes,
            f"{word}_SCALES_AT": part.scales_at,
            f"{word}_SCALE_BYTES": part.scale_bytes,
        }
    constants["TO_RAW"] = section(target, side).vector.is_raw
    return constants


def _scales_checked(name: str, scales: ScaleSet, layout: PageLayout, arena: Tensor) -> None:
    wanted = (layout.layers, layout.kv_heads, layout.head_size)
    if tuple(scales.keys.shape) != wanted[:2]:
        raise InvalidArgument(
            name, tuple(scales.keys.shape), f"of {layout.layers} layers and {layout.kv_heads} KV heads"
        )
    if scales.key_means is not None and tuple(scales.key_means.shape) != wanted:
        raise InvalidArgument(name, tuple(scales.key_means.shape), f"with key means {wanted}")
    if scales.keys.device != arena.device:
        raise InvalidArgument(name, str(scales.keys.device), f"on {arena.device}, where the arena is")


def _layouts_checked(source: PageLayout, target: PageLayout) -> None:
    for name in ("layers", "kv_heads", "head_size", "block_tokens"):
        if getattr(source, name) != getattr(target, name):
            raise InvalidArgument(f"target.{name}", getattr(target, name), f"the source's {getattr(source, name)}")


def _apart_checked(begins: list[int], begin_bytes: int, ends: list[int], end_bytes: int) -> None:
    """No target on a source or on another target: pages are converted side by side, in no order."""
    spans = [(end, end_bytes, True) for end in ends] + [(begin, begin_bytes, False) for begin in set(begins)]
    spans.sort()
    reached, was_target = 0, False
    for begin, size, is_target in spans:
        if begin < reached and (is_target or was_target):
            raise InvalidArgument("target_pages", begin, "apart from every source page and every other target page")
        if begin + size > reached:
            reached, was_target = begin + size, is_target
        else:
            was_target = was_target or is_target


def compile_cases(head_size: int, kv_format: KvFormat) -> Iterator[CompileCase]:
    """What is compiled ahead of time: into the format and out of it, both sides."""
    other = KV_FORMATS["fp8" if kv_format.name == "bf16" else "bf16"]
    pointers = {"arena": "*u8", "sources": "*i64", "targets": "*i64"}
    pointers |= dict.fromkeys(("source_scale", "target_scale", "source_mean", "target_mean"), "*fp32")
    for source, target in ((other, kv_format), (kv_format, other)):
        for side in SIDES:
            constants = _constants(PageLayout(source, 32, 8, head_size), PageLayout(target, 32, 8, head_size), side)
            yield CompileCase(
                name=f"page_convert {side}s, {source.name} to {target.name}, {head_size}",
                kernel=_page_convert_kernel,
                signature=pointers | {"source_layer": "i64", "target_layer": "i64"},
                constexprs=constants | {"FROM_MEAN": True, "TO_MEAN": True},
                options={"enable_fp_fusion": False},
                aligned=("source_layer", "target_layer"),
            )
