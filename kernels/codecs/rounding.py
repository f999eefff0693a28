"""Rounding half to even, and integers that hold what they must: what several codecs share.

Nothing here is a cast that rounds: casts truncate, saturate or turn out wrong differently on a CPU, on a GPU and in
Triton's interpreter, and a cache must hold the same bytes whoever wrote them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.dispatch import jit, tl

SMALLEST_SCALE = 1e-6  # of a vector of zeros: its codes are 0 whatever the scale
_ROUNDS = 12582912.0  # 1.5 · 2²³: adding it leaves no bits for a fraction, so the sum is rounded half to even


def rounded(x: Tensor) -> Tensor:
    """To the nearest whole number, half to even."""
    return torch.round(x)


def divided(x: Tensor, by: float) -> Tensor:
    """x / by as IEEE 754 says: by a number, torch multiplies with its reciprocal on a GPU, and loses a bit."""
    return x / torch.full((), by, device=x.device)


def as_bytes(x: Tensor) -> Tensor:
    """The last dimension's bytes, in place."""
    return x.contiguous().view(torch.uint8)


@jit
def round_even(x):  # type: ignore[no-untyped-def]
    """Of numbers below 2²² in size. Launch with enable_fp_fusion=False: fused with a product it would round once."""
    return (x + 12582912.0) - 12582912.0


@jit
def typed(arena, at, TYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Pointers to `TYPE` at byte addresses in the arena."""
    return (arena + at).to(tl.pointer_type(TYPE), bitcast=True)


@jit
def to_bfloat16(x):  # type: ignore[no-untyped-def]
    """Half to even; NaN stays NaN. Triton's interpreter would cut the bits off."""
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(x == x, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, 0x7FC0)
    return bits.to(tl.int16).to(tl.bfloat16, bitcast=True)
