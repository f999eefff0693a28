"""Write keys and values into their pages: turn, centre, rotate, encode, store.

keys, values [tokens, kv_heads, head_size] → the bytes of the tokens' slots in one layer. Each vector is read once and
its codes and scales written once; bandwidth-bound. Keys are turned by RoPE on the way if tables are given (in
float32, rounded once, where a separate op would round to the model's dtype in between), lose the calibrated mean, and
are rotated where the format rotates.

A vector with a NaN or an infinity is never written: zeros are, so that neither poison nor what the slot's former owner
left can be read, and `refused` counts, for each token, the elements that were not finite. Whoever runs the model fails
that request alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.aot import CompileCase
from kernels.dispatch import implementation, jit, tl, triton
from kernels.errors import InvalidArgument
from kernels.formats import KvFormat
from kernels.layout import PageLayout
from kernels.native import calls
from kernels.places import Side, scatter_bytes, section, vector_places
from kernels.rope import apply_rope_reference, positions_checked, rope_checked
from kernels.scales import LayerScales
from kernels.tables import Rope, WriteTable, arena_checked
from kernels.vectors import encode, finite_rows, ready_rows, store_vectors


def kv_write_reference(
    arena: Tensor,
    table: WriteTable,
    layer: int,
    keys: Tensor,
    values: Tensor,
    scales: LayerScales,
    rope: Rope | None = None,
    refused: Tensor | None = None,
) -> Tensor:
    """What the kernel does, a step at a time. Returns `refused`."""
    layout = table.layout
    refused = _new_refused(arena, table) if refused is None else refused
    prepared = keys.float() if rope is None else apply_rope_reference(keys.float(), rope)
    if scales.key_mean is not None and not layout.kv_format.key.is_raw:
        prepared = prepared - scales.key_mean
    layers_at = table.pages + layer * layout.layer_bytes
    sides: tuple[tuple[Side, Tensor, Tensor], ...] = (
        ("key", prepared, scales.key),
        ("value", values.float(), scales.value),
    )
    for side, vectors, static_scale in sides:
        broken = ~vectors.isfinite()
        refused += broken.sum(dim=(1, 2), dtype=torch.int32)
        finite = vectors.masked_fill(broken.any(dim=-1, keepdim=True), 0.0)
        part = section(layout, side)
        codes, code_scales = encode(
            finite, part.vector, static_scale[:, None] if part.vector.has_static_scale else None
        )
        codes_at, scales_at = vector_places(layout, part, layers_at, table.slots)
        scatter_bytes(arena, codes_at, codes)
        scatter_bytes(arena, scales_at, code_scales)
    return refused


@jit
def _store_rows(  # type: ignore[no-untyped-def]
    arena, begins, slot, head, mask, x, token, refused, static_scale,
    CODES_AT: tl.constexpr, SCALES_AT: tl.constexpr, CODE_BYTES: tl.constexpr, SCALE_BYTES: tl.constexpr,
    VECTOR: tl.constexpr, RAW: tl.constexpr, ROTATED: tl.constexpr, BLOCK_TOKENS: tl.constexpr,
    D: tl.constexpr, N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    x, count = finite_rows(x)
    tl.atomic_add(refused + token, count, mask=mask & (count > 0))
    x = ready_rows(x, RAW, ROTATED, N, D, BLOCK_D)
    vector = head * BLOCK_TOKENS + slot
    codes_at = begins + CODES_AT + vector * CODE_BYTES
    scales_at = begins + SCALES_AT + vector * SCALE_BYTES
    store_vectors(arena, codes_at, scales_at, mask, x, static_scale, VECTOR, D, N, BLOCK_D)


@jit
def _kv_write_kernel(  # type: ignore[no-untyped-def]
    arena, keys, values, pages, slots, key_scale, value_scale, key_mean, cos, sin, positions, refused,
    tokens, layer_at, key_stride, value_stride,
    HAS_MEAN: tl.constexpr, HAS_ROPE: tl.constexpr,
    KEY: tl.constexpr, KEY_RAW: tl.constexpr, KEY_ROTATED: tl.constexpr, KEY_CODE_BYTES: tl.constexpr,
    KEY_SCALES_AT: tl.constexpr, KEY_SCALE_BYTES: tl.constexpr,
    VALUE: tl.constexpr, VALUE_RAW: tl.constexpr, VALUE_ROTATED: tl.constexpr, VALUE_CODES_AT: tl.constexpr,
    VALUE_CODE_BYTES: tl.constexpr, VALUE_SCALES_AT: tl.constexpr, VALUE_SCALE_BYTES: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """N tokens of one head: first their keys, then their values."""
    token = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    head = tl.program_id(1)
    mask = token < tokens
    d = tl.arange(0, BLOCK_D)
    inside = mask[:, None] & (d < D)[None, :]
    begins = tl.load(pages + token, mask=mask, other=0) + layer_at
    slot = tl.load(slots + token, mask=mask, other=0)

    row = keys + token[:, None] * key_stride + head * D
    x = tl.load(row + d[None, :], mask=inside, other=0.0).to(tl.float32)
    if HAS_ROPE:
        half: tl.constexpr = D // 2
        other = tl.load(row + ((d + half) % D)[None, :], mask=inside, other=0.0).to(tl.float32)
        position = tl.load(positions + token, mask=mask, other=0)
        angle = position[:, None] * half + (d % half)[None, :]
        turned = other * tl.load(sin + angle, mask=inside, other=0.0)
        x = x * tl.load(cos + angle, mask=inside, other=0.0) + tl.where((d < half)[None, :], -turned, turned)
    if HAS_MEAN:
        x = x - tl.load(key_mean + head * D + d, mask=d < D, other=0.0)[None, :]
    _store_rows(
        arena, begins, slot, head, mask, tl.where(inside, x, 0.0), token, refused, tl.load(key_scale + head),
        0, KEY_SCALES_AT, KEY_CODE_BYTES, KEY_SCALE_BYTES, KEY, KEY_RAW, KEY_ROTATED, BLOCK_TOKENS, D, N, BLOCK_D,
    )  # fmt: skip
    x = tl.load(values + token[:, None] * value_stride + head * D + d[None, :], mask=inside, other=0.0).to(tl.float32)
    _store_rows(
        arena, begins, slot, head, mask, x, token, refused, tl.load(value_scale + head),
        VALUE_CODES_AT, VALUE_SCALES_AT, VALUE_CODE_BYTES, VALUE_SCALE_BYTES, VALUE, VALUE_RAW, VALUE_ROTATED,
        BLOCK_TOKENS, D, N, BLOCK_D,
    )  # fmt: skip


_TOKENS = 16  # a program's: decoding has few, and a page's tokens of one head lie side by side


def kv_write(
    arena: Tensor,
    table: WriteTable,
    layer: int,
    keys: Tensor,
    values: Tensor,
    scales: LayerScales,
    rope: Rope | None = None,
    refused: Tensor | None = None,
) -> Tensor:
    """Write one layer's keys and values. Returns, per token, how many elements were refused for not being finite, added
    to `refused` if that is given. Raises InvalidArgument before anything is written."""
    layout = table.layout
    _arguments_checked(arena, table, layer, keys, values, scales)
    if rope is not None:
        rope_checked(rope, table.tokens, layout.head_size, arena.device)
    if refused is None:
        refused = _new_refused(arena, table)
    else:
        _tensor_checked("refused", refused, torch.int32, (table.tokens,), arena)
    by = implementation(arena, layout.kv_format, has_native=True)
    if by == "native" and calls.kv_write(arena, table, layer, keys, values, scales, rope, refused):
        return refused  # it has looked at the positions, which takes torch longer than all the rest
    if rope is not None:
        positions_checked(rope)
    if by == "torch":
        return kv_write_reference(arena, table, layer, keys, values, scales, rope, refused)
    has_mean = scales.key_mean is not None and not layout.kv_format.key.is_raw
    _kv_write_kernel[(triton.cdiv(table.tokens, _TOKENS), layout.kv_heads)](
        arena, keys, values, table.pages, table.slots, scales.key, scales.value,
        scales.key_mean if has_mean else scales.key,
        rope.cos if rope else scales.key, rope.sin if rope else scales.key, rope.positions if rope else table.pages,
        refused, table.tokens, layer * layout.layer_bytes, keys.stride(0), values.stride(0),
        HAS_MEAN=has_mean, HAS_ROPE=rope is not None, **_constants(layout), enable_fp_fusion=False,
    )  # fmt: skip
    return refused


def _constants(layout: PageLayout) -> dict[str, str | int | bool]:
    key, value = section(layout, "key"), section(layout, "value")
    return {
        "KEY": key.vector.name,
        "KEY_RAW": key.vector.is_raw,
        "KEY_ROTATED": key.vector.is_rotated,
        "KEY_CODE_BYTES": key.code_bytes,
        "KEY_SCALES_AT": key.scales_at,
        "KEY_SCALE_BYTES": key.scale_bytes,
        "VALUE": value.vector.name,
        "VALUE_RAW": value.vector.is_raw,
        "VALUE_ROTATED": value.vector.is_rotated,
        "VALUE_CODES_AT": value.codes_at,
        "VALUE_CODE_BYTES": value.code_bytes,
        "VALUE_SCALES_AT": value.scales_at,
        "VALUE_SCALE_BYTES": value.scale_bytes,
        "BLOCK_TOKENS": layout.block_tokens,
        "D": layout.head_size,
        "BLOCK_D": triton.next_power_of_2(layout.head_size),
        "N": _TOKENS,
    }


def _new_refused(arena: Tensor, table: WriteTable) -> Tensor:
    return torch.zeros(table.tokens, dtype=torch.int32, device=arena.device)


def _arguments_checked(
    arena: Tensor, table: WriteTable, layer: int, keys: Tensor, values: Tensor, scales: LayerScales
) -> None:
    layout = table.layout
    arena_checked(arena, table.reach)
    if type(layer) is not int or not 0 <= layer < layout.layers:
        raise InvalidArgument("layer", layer, f"between 0 and {layout.layers - 1}")
    wanted = (table.tokens, layout.kv_heads, layout.head_size)
    for name, vectors in (("keys", keys), ("values", values)):
        if vectors.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise InvalidArgument(name, vectors.dtype, "float32, bfloat16 or float16")
        if vectors.shape != wanted:
            raise InvalidArgument(name, tuple(vectors.shape), f"{wanted}: tokens, KV heads, head size")
        if vectors.stride()[1:] != (layout.head_size, 1) and not vectors[0].is_contiguous():
            raise InvalidArgument(name, f"stride {vectors.stride()}", "contiguous but for the tokens")
        if vectors.device != arena.device:
            raise InvalidArgument(name, str(vectors.device), f"on {arena.device}, where the arena is")
    _tensor_checked("scales.key", scales.key, torch.float32, wanted[1:2], arena)
    _tensor_checked("scales.value", scales.value, torch.float32, wanted[1:2], arena)
    if scales.key_mean is not None:
        _tensor_checked("scales.key_mean", scales.key_mean, torch.float32, wanted[1:], arena)


def _tensor_checked(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], arena: Tensor) -> None:
    if tensor.dtype != dtype or tensor.shape != shape:
        raise InvalidArgument(name, f"{tensor.dtype} {tuple(tensor.shape)}", f"{dtype} {shape}")
    if not tensor.is_contiguous():
        raise InvalidArgument(name, f"stride {tensor.stride()}", "contiguous")
    if tensor.device != arena.device:
        raise InvalidArgument(name, str(tensor.device), f"on {arena.device}, where the arena is")


def compile_cases(head_size: int, kv_format: KvFormat) -> Iterator[CompileCase]:
    """What is compiled ahead of time."""
    pointers = {
        "arena": "*u8", "keys": "*bf16", "values": "*bf16", "pages": "*i64", "slots": "*i32", "key_scale": "*fp32",
        "value_scale": "*fp32", "key_mean": "*fp32", "cos": "*fp32", "sin": "*fp32", "positions": "*i64",
        "refused": "*i32",
    }  # fmt: skip
    numbers = {"tokens": "i32", "layer_at": "i64", "key_stride": "i32", "value_stride": "i32"}
    yield CompileCase(
        name=f"kv_write {kv_format.name} {head_size}",
        kernel=_kv_write_kernel,
        signature=pointers | numbers,
        constexprs={"HAS_MEAN": True, "HAS_ROPE": True, **_constants(PageLayout(kv_format, 32, 8, head_size))},
        options={"enable_fp_fusion": False},
        aligned=("layer_at", "key_stride", "value_stride"),
    )
