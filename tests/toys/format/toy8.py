"""`toy8`: whole numbers from -100 to 100 as bytes above 28, times one float32 scale for each vector."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.codecs.rounding import SMALLEST_SCALE, as_bytes, divided, rounded
from kernels.formats import VectorFormat


def encode(x: Tensor, vector: VectorFormat, static_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes and the vector's scale."""
    scale = divided(x.abs().amax(dim=-1, keepdim=True), 100.0).clamp_min(SMALLEST_SCALE)
    return (rounded(x / scale).clamp(-100, 100) + 128).to(torch.uint8), as_bytes(scale)


def units_and_scale(
    codes: Tensor, scales: Tensor, vector: VectorFormat, head_size: int, static_scale: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Units are the whole numbers."""
    return codes.float() - 128, scales.contiguous().view(torch.float32)
