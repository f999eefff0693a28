"""`int4` and `int2`: a few levels between a vector's smallest and largest number, several to a byte.

Each vector carries one float32 scale whose four lowest bits are the zero point: the code that stands for 0. `int4` is
rotated before it comes here (`kernels/fwht.py`), so that one outlier does not take the levels of all others: 128
numbers are 68 bytes. `int2` is not, and is the control that every quality test must reject.

A byte holds elements that lie `head_size / parts` apart (4 bits: the low nibbles are the first half of the vector, the
high nibbles the second), so that neighbouring threads of a GPU read neighbouring bytes and each takes its own bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.codecs.rounding import SMALLEST_SCALE, as_bytes, divided, round_even, rounded, typed
from kernels.codecs.words import halves_in_order, in_order, load_words, widened
from kernels.dispatch import jit, tl
from kernels.formats import VectorFormat

_ZERO_POINT = 15  # the bits of a scale that are its zero point


def encode(x: Tensor, vector: VectorFormat, static_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes and the vector's scale with its zero point."""
    top = (1 << vector.bits) - 1
    low, high = x.amin(dim=-1, keepdim=True).clamp_max(0.0), x.amax(dim=-1, keepdim=True).clamp_min(0.0)
    # Divided before it is subtracted: the span of a vector may be more than a float32 holds, a level's width is not.
    bits = (divided(high, top) - divided(low, top)).clamp_min(SMALLEST_SCALE).view(torch.int32) & ~_ZERO_POINT
    inverse = 1.0 / bits.view(torch.float32)
    zero = rounded(-low * inverse).clamp(0, top)
    codes = (rounded(x * inverse) + zero).clamp(0, top).to(torch.uint8)
    return pack(codes, vector.bits), as_bytes(bits | zero.to(torch.int32))


def units_and_scale(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Units are the levels' distances from the zero point."""
    header = scales.contiguous().view(torch.int32)
    levels = unpack(codes, vector.bits, head_size, torch.float32)
    return levels.sub_((header & _ZERO_POINT).float()), (header & ~_ZERO_POINT).view(torch.float32)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes of `bits` each, as many parts to a byte as fit."""
    parts = codes.unflatten(-1, (8 // bits, -1)).unbind(-2)
    packed: Tensor = parts[0].clone()
    for part, more in enumerate(parts[1:], start=1):
        packed |= more << (part * bits)
    return packed


def unpack(packed: Tensor, bits: int, head_size: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """What `pack` was given."""
    codes = packed.new_empty(*packed.shape[:-1], head_size, dtype=dtype)
    width = packed.shape[-1]
    for part in range(8 // bits):
        codes[..., part * width : (part + 1) * width] = (packed >> (part * bits)) & ((1 << bits) - 1)
    return codes


@jit
def load_codes(arena, codes_at, inside, d, BITS: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Codes as int16, each element its own bits of the byte it shares."""
    width: tl.constexpr = D * BITS // 8
    codes_at = tl.multiple_of(codes_at, 16 if width % 16 == 0 else 8 if width % 8 == 0 else 4)
    shift = (d // width) * BITS
    packed = tl.load(arena + codes_at[:, None] + (d % width)[None, :], mask=inside, other=0)
    return (packed.to(tl.int16) >> shift[None, :].to(tl.int16)) & ((1 << BITS) - 1)


@jit
def store_codes(  # type: ignore[no-untyped-def]
    arena, codes_at, mask, codes, BITS: tl.constexpr, D: tl.constexpr, N: tl.constexpr, BLOCK_D: tl.constexpr
):
    """`pack`, from a tile of int32 codes; each part is gathered from where the vector has it."""
    width: tl.constexpr = D * BITS // 8
    lanes: tl.constexpr = BLOCK_D * BITS // 8
    lane = tl.arange(0, lanes)
    packed = tl.zeros((N, lanes), dtype=tl.int32)
    for part in tl.static_range(0, 8 // BITS):
        place = tl.minimum(lane + part * width, BLOCK_D - 1)
        packed |= tl.gather(codes, tl.broadcast_to(place[None, :], (N, lanes)), axis=1) << (part * BITS)
    tl.store(
        arena + codes_at[:, None] + lane[None, :], packed.to(tl.uint8), mask=mask[:, None] & (lane < width)[None, :]
    )


@jit
def load_packed(arena, codes_at, scales_at, mask, inside, d, BITS: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    header = tl.load(typed(arena, scales_at, tl.int32), mask=mask, other=0)
    zero = (header & 15).to(tl.float32) + 128.0
    if BITS == 4 and d.shape[0] == D:
        N: tl.constexpr = codes_at.shape[0]
        words = load_words(arena, codes_at, mask, D // 8)
        # 0x4300 is 128 in bfloat16, whose last bit then weighs 1: a code becomes a number without a conversion.
        low = in_order((words & 0x000F000F) | 0x43004300, ((words >> 8) & 0x000F000F) | 0x43004300, N, D // 8)
        high = in_order(((words >> 4) & 0x000F000F) | 0x43004300, ((words >> 12) & 0x000F000F) | 0x43004300, N, D // 8)
        levels = widened(halves_in_order(low, high, N, D))
    else:
        levels = (load_codes(arena, codes_at, inside, d, BITS, D) | 0x4300).to(tl.bfloat16, bitcast=True).to(tl.float32)
    units = levels - zero[:, None]
    if d.shape[0] != D:  # beyond the vector the code is 0, but 0 need not be the zero point
        units = tl.where(inside, units, 0.0)
    return units.to(tl.bfloat16), (header & -16).to(tl.float32, bitcast=True)


@jit
def store_packed(  # type: ignore[no-untyped-def]
    arena,
    codes_at,
    scales_at,
    mask,
    inside,
    x,
    BITS: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    top: tl.constexpr = (1 << BITS) - 1
    # Beyond the vector x is 0, which lies between both bounds anyway.
    low, high = tl.minimum(tl.min(x, axis=1), 0.0), tl.maximum(tl.max(x, axis=1), 0.0)
    scale = tl.maximum(tl.div_rn(high, top * 1.0) - tl.div_rn(low, top * 1.0), 1e-6)
    bits = scale.to(tl.int32, bitcast=True) & -16
    inverse = tl.div_rn(1.0, bits.to(tl.float32, bitcast=True))
    zero = tl.minimum(tl.maximum(round_even(-low * inverse), 0.0), top * 1.0)
    codes = tl.minimum(tl.maximum(round_even(x * inverse[:, None]) + zero[:, None], 0.0), top * 1.0)
    store_codes(arena, codes_at, mask, codes.to(tl.int32), BITS, D, N, BLOCK_D)
    tl.store(typed(arena, scales_at, tl.int32), bits | zero.to(tl.int32), mask=mask)
