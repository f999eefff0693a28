"""`nvfp4`: 4-bit floating point (E2M1) with an E4M3 scale for every 16 numbers, under one static scale for the head.

128 numbers are 64 bytes of codes and 8 of scales. The scales are stored, not computed again, so what is read is exactly
code × scale. Small values need the static scale of a calibration: E4M3 has little left below 2⁻⁶.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.codecs import minifloat, packed
from kernels.codecs.minifloat import decode_minifloat, encode_minifloat
from kernels.codecs.packed import load_codes, store_codes
from kernels.codecs.rounding import divided
from kernels.codecs.words import halves_in_order, in_order, load_words, minifloat_pairs, widened
from kernels.dispatch import jit, tl
from kernels.formats import NVFP4, VectorFormat


def encode(x: Tensor, vector: VectorFormat, static_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes and one scale for each group."""
    scaled = x if static_scale is None else x * (1.0 / static_scale)
    groups = scaled.unflatten(-1, (-1, NVFP4.group))
    scales = minifloat.encode(divided(groups.abs().amax(dim=-1), minifloat.E2M1.largest), minifloat.E4M3)
    sizes = minifloat.decode(scales, minifloat.E4M3)
    inverse = torch.where(sizes > 0, 1.0 / sizes, 0.0)  # of a scale too small for E4M3 all codes are 0
    codes = minifloat.encode((groups * inverse.unsqueeze(-1)).flatten(-2), minifloat.E2M1)
    return packed.pack(codes, vector.bits), scales


def units_and_scale(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Units are code × its group's scale; only the static scale can wait."""
    values = minifloat.decode(packed.unpack(codes, vector.bits, head_size), minifloat.E2M1)
    sizes = minifloat.decode(scales, minifloat.E4M3).unsqueeze(-1)
    return (values.unflatten(-1, (-1, NVFP4.group)) * sizes).flatten(-2), static_scale


@jit
def load_nvfp4(arena, codes_at, scales_at, mask, inside, d, D: tl.constexpr):  # type: ignore[no-untyped-def]
    if d.shape[0] == D:
        words = load_words(arena, codes_at, mask, D // 8)
        N: tl.constexpr = codes_at.shape[0]
        low = in_order(minifloat_pairs(words, 2, 1), minifloat_pairs(words >> 8, 2, 1), N, D // 8)
        high = in_order(minifloat_pairs(words >> 4, 2, 1), minifloat_pairs(words >> 12, 2, 1), N, D // 8)
        values = (widened(halves_in_order(low, high, N, D)) * 2.0**126).to(tl.bfloat16)
        group = tl.arange(0, D // 16)
        codes = tl.load(arena + scales_at[:, None] + group[None, :], mask=mask[:, None], other=0)
        sizes = decode_minifloat(codes, 4, 3)
        values = tl.reshape(values, (N, D // 16, 16)).to(tl.float32) * sizes.to(tl.float32)[:, :, None]
        return tl.reshape(values, (N, D)).to(tl.bfloat16)  # 2 bits times 4: exact
    else:
        values = decode_minifloat(load_codes(arena, codes_at, inside, d, 4, D), 2, 1)
        sizes = decode_minifloat(tl.load(arena + scales_at[:, None] + (d // 16)[None, :], mask=inside, other=0), 4, 3)
        return (values.to(tl.float32) * sizes.to(tl.float32)).to(tl.bfloat16)


@jit
def store_nvfp4(  # type: ignore[no-untyped-def]
    arena, codes_at, scales_at, mask, x, static_scale, D: tl.constexpr, N: tl.constexpr, BLOCK_D: tl.constexpr
):
    groups: tl.constexpr = BLOCK_D // 16
    scaled = tl.reshape(x * tl.div_rn(1.0, static_scale), (N, groups, 16))
    scales = encode_minifloat(tl.div_rn(tl.max(tl.abs(scaled), axis=2), 6.0), 4, 3, 448.0)
    sizes = decode_minifloat(scales, 4, 3).to(tl.float32)
    inverse = tl.where(sizes > 0, tl.div_rn(1.0, tl.where(sizes > 0, sizes, 1.0)), 0.0)
    codes = encode_minifloat(tl.reshape(scaled * inverse[:, :, None], (N, BLOCK_D)), 2, 1, 6.0)
    store_codes(arena, codes_at, mask, codes, 4, D, N, BLOCK_D)
    group = tl.arange(0, groups)
    valid = mask[:, None] & (group < D // 16)[None, :]
    tl.store(arena + scales_at[:, None] + group[None, :], scales.to(tl.uint8), mask=valid)
