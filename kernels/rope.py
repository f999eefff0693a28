"""Rotary position embedding, in the split-halves convention of Hugging Face's models.

Element d is paired with d + head_size/2, and each pair is turned by its position's angle. The tables come from the
model, so that every variant of scaling is a table and nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.dispatch import implementation
from kernels.errors import InvalidArgument
from kernels.native import calls
from kernels.tables import Rope


def rope_checked(rope: Rope, tokens: int, head_size: int, device: torch.device) -> Rope:
    """Raises InvalidArgument. The positions themselves are not looked at, see `positions_checked`."""
    wanted = (len(rope.cos), head_size // 2)
    for name, table in (("rope.cos", rope.cos), ("rope.sin", rope.sin)):
        if table.dtype != torch.float32 or table.ndim != 2 or not len(table) or table.shape[1] != head_size // 2:
            raise InvalidArgument(name, _described(table), f"float32 [positions, {head_size // 2}]")
        if not table.is_contiguous() or table.device != device or table.shape != wanted:
            raise InvalidArgument(
                name, _described(table), f"contiguous, on {device}, and one table as long as the other"
            )
    positions = rope.positions
    if positions.dtype != torch.int64 or positions.shape != (tokens,):
        raise InvalidArgument("rope.positions", f"{positions.dtype} {tuple(positions.shape)}", f"int64 [{tokens}]")
    if not positions.is_contiguous() or positions.device != device:
        raise InvalidArgument("rope.positions", f"on {positions.device}", f"contiguous and on {device}")
    return rope


def _described(table: Tensor) -> str:
    return f"{table.dtype} {tuple(table.shape)} on {table.device}"


def positions_checked(rope: Rope) -> None:
    """Whether the tables have all positions. Raises InvalidArgument; on a GPU never: that would wait for it."""
    positions = rope.positions
    if not positions.is_cuda and len(positions):
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= len(rope.cos):
            raise InvalidArgument("rope.positions", low if low < 0 else high, f"between 0 and {len(rope.cos) - 1}")


def apply_rope_reference(x: Tensor, rope: Rope) -> Tensor:
    """x [tokens, heads, head_size] turned, in float32 and back."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = rope.cos[rope.positions].unsqueeze(1), rope.sin[rope.positions].unsqueeze(1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def apply_rope(x: Tensor, rope: Rope) -> Tensor:
    """x [tokens, heads, head_size] turned, in float32 and back: the reference's bits, whoever computes them."""
    if implementation(x, has_native=True) == "native" and calls.can_turn(x, rope):
        turned = calls.turned(x, rope)
        if turned is not None:
            return turned
    return apply_rope_reference(x, rope)
