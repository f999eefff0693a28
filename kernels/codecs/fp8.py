"""`e4m3` and `e5m2`: 8-bit floating point under one static scale for each layer and head.

A vector carries no scale of its own, so 128 numbers are 128 bytes. E4M3 has the precision, E5M2 the range; the
product's `fp8` keeps keys in the first and values in the second.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.codecs import minifloat
from kernels.codecs.minifloat import decode_minifloat, encode_minifloat
from kernels.codecs.words import in_order, load_words, minifloat_pairs, widened
from kernels.dispatch import jit, tl
from kernels.formats import VectorFormat

_KINDS = {"e4m3": minifloat.E4M3, "e5m2": minifloat.E5M2}


def encode(x: Tensor, vector: VectorFormat, static_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes of x / static_scale and no scales."""
    scaled = x if static_scale is None else x * (1.0 / static_scale)
    codes = minifloat.encode(scaled, _KINDS[vector.name])
    return codes, torch.empty(*x.shape[:-1], 0, dtype=torch.uint8, device=x.device)


def units_and_scale(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Units are too small by a power of two, which the scale makes good: one product less for each element."""
    kind = _KINDS[vector.name]
    if static_scale is None:
        static_scale = torch.ones(1, device=codes.device)
    return minifloat.to_half(codes, kind), static_scale * kind.half_scale


@jit
def load_fp8(arena, codes_at, mask, inside, d, VECTOR: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    EXPONENT: tl.constexpr = 4 if VECTOR == "e4m3" else 5
    if d.shape[0] == D:
        words = load_words(arena, codes_at, mask, D // 4)
        N: tl.constexpr = codes_at.shape[0]
        even = minifloat_pairs(words, EXPONENT, 7 - EXPONENT)
        small = in_order(even, minifloat_pairs(words >> 8, EXPONENT, 7 - EXPONENT), N, D // 4)
        return (widened(small) * 2.0 ** (128 - (1 << (EXPONENT - 1)))).to(tl.bfloat16)
    else:
        codes = tl.load(arena + codes_at[:, None] + d[None, :], mask=inside, other=0)
        return decode_minifloat(codes, EXPONENT, 7 - EXPONENT)


@jit
def store_fp8(arena, codes_at, inside, d, x, static_scale, VECTOR: tl.constexpr):  # type: ignore[no-untyped-def]
    scaled = x * tl.div_rn(1.0, static_scale)
    codes = encode_minifloat(scaled, 4, 3, 448.0) if VECTOR == "e4m3" else encode_minifloat(scaled, 5, 2, 57344.0)
    tl.store(arena + codes_at[:, None] + d[None, :], codes.to(tl.uint8), mask=inside)
