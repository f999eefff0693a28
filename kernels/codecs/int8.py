"""`int8`: whole numbers from -127 to 127, times one float32 scale for each vector.

The safest way to half the bytes: half the error of fp8 at (nearly) the same size. 128 numbers are 132 bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.codecs.rounding import SMALLEST_SCALE, as_bytes, divided, round_even, rounded, typed
from kernels.codecs.words import in_order, load_words, widened
from kernels.dispatch import jit, tl
from kernels.formats import VectorFormat


def encode(x: Tensor, vector: VectorFormat, static_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes and the vector's scale."""
    scale = divided(x.abs().amax(dim=-1, keepdim=True), 127.0).clamp_min(SMALLEST_SCALE)
    codes = rounded(x * (1.0 / scale)).clamp(-127, 127).to(torch.int8)
    return as_bytes(codes), as_bytes(scale)


def units_and_scale(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Units are the whole numbers."""
    return codes.view(torch.int8).float(), scales.contiguous().view(torch.float32)


@jit
def load_int8(arena, codes_at, scales_at, mask, inside, d, D: tl.constexpr):  # type: ignore[no-untyped-def]
    scale = tl.load(typed(arena, scales_at, tl.float32), mask=mask, other=0.0)
    if d.shape[0] == D:
        # The low seven bits above 128 (0x4300 in bfloat16), less 128, or less 256 (0x4380) where the sign is set.
        words = load_words(arena, codes_at, mask, D // 4)
        others = words >> 8
        N: tl.constexpr = codes_at.shape[0]
        size = in_order((words & 0x007F007F) | 0x43004300, (others & 0x007F007F) | 0x43004300, N, D // 4)
        less = in_order((words & 0x00800080) | 0x43004300, (others & 0x00800080) | 0x43004300, N, D // 4)
        return (widened(size) - widened(less)).to(tl.bfloat16), scale
    else:
        codes = tl.load(typed(arena, codes_at[:, None] + d[None, :], tl.int8), mask=inside, other=0)
        # Through float32: Triton's interpreter takes the bits of a whole number for those of a bfloat16.
        return codes.to(tl.float32).to(tl.bfloat16), scale


@jit
def store_int8(arena, codes_at, scales_at, mask, inside, d, x):  # type: ignore[no-untyped-def]
    scale = tl.maximum(tl.div_rn(tl.max(tl.abs(x), axis=1), 127.0), 1e-6)
    codes = round_even(x * tl.div_rn(1.0, scale)[:, None])
    codes = tl.minimum(tl.maximum(codes, -127.0), 127.0).to(tl.int32)
    tl.store(typed(arena, codes_at[:, None] + d[None, :], tl.int8), codes.to(tl.int8), mask=inside)
    tl.store(typed(arena, scales_at, tl.float32), scale, mask=mask)
