"""`fp32` and `bf16`: the number itself.

`fp32` makes exact parity testable, `bf16` is what models compute in. Both saturate: no infinity is ever stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.codecs.rounding import as_bytes, to_bfloat16, typed
from kernels.dispatch import jit, tl
from kernels.formats import VectorFormat

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def encode(x: Tensor, vector: VectorFormat, static_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes and no scales."""
    dtype = _TYPES[vector.name]
    largest = torch.finfo(dtype).max
    return as_bytes(x.clamp(-largest, largest).to(dtype)), x.new_empty((*x.shape[:-1], 0), dtype=torch.uint8)


def units_and_scale(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The numbers themselves."""
    return codes.view(_TYPES[vector.name]).float(), None


@jit
def load_plain(arena, codes_at, inside, d, VECTOR: tl.constexpr):  # type: ignore[no-untyped-def]
    # Cast before the elements are counted: the compiler must see neighbours to load 16 bytes at once.
    if VECTOR == "fp32":
        return tl.load(typed(arena, codes_at[:, None], tl.float32) + d[None, :], mask=inside, other=0.0)
    else:
        return tl.load(typed(arena, codes_at[:, None], tl.bfloat16) + d[None, :], mask=inside, other=0.0)


@jit
def store_plain(arena, codes_at, inside, d, x, VECTOR: tl.constexpr):  # type: ignore[no-untyped-def]
    if VECTOR == "fp32":
        tl.store(typed(arena, codes_at[:, None], tl.float32) + d[None, :], x, mask=inside)
    else:
        largest = 3.3895313892515355e38
        kept = to_bfloat16(tl.minimum(tl.maximum(x, -largest), largest))
        tl.store(typed(arena, codes_at[:, None], tl.bfloat16) + d[None, :], kept, mask=inside)
