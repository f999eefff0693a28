"""The rotation: a randomised Hadamard transform of each vector. R x = H (s ∘ x) / √b.

x [..., head_size] → the same shape and dtype, computed in float32. `s` are fixed random signs; H is block-diagonal with
the descending powers of two that add up to the head size (128 = 128, 96 = 64 + 32, 80 = 64 + 16), each block divided by
the root of its size. R is orthogonal: scores stay what they were when keys and queries are both rotated, and an outlier
is spread over its block. One read and one write of x; bandwidth-bound.

Only sums and differences in a fixed order, then one product: every implementation gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from kernels.aot import CompileCase
from kernels.codecs.rounding import to_bfloat16
from kernels.dispatch import implementation, jit, tl, triton
from kernels.errors import InvalidArgument
from kernels.layout import MOST_HEAD_SIZE


def block_sizes(head_size: int) -> list[int]:
    """The powers of two that add up to it, largest first."""
    return [1 << bit for bit in reversed(range(head_size.bit_length())) if head_size >> bit & 1]


@lru_cache
def signs(head_size: int) -> Tensor:
    """+1 or -1 for each element, the same for ever: they are part of what a stored code means."""
    mixed = torch.arange(1, head_size + 1, dtype=torch.int64)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
    mixed ^= mixed >> 16
    return 1.0 - 2.0 * (mixed & 1).float()


def fwht_reference(x: Tensor, inverse: bool = False) -> Tensor:
    """Block by block, stage by stage."""
    sign = signs(x.shape[-1]).to(x.device)
    wide = x.float() if inverse else x.float() * sign
    blocks = [_hadamard(block) * block.shape[-1] ** -0.5 for block in wide.split(block_sizes(x.shape[-1]), dim=-1)]
    rotated = torch.cat(blocks, dim=-1)
    return (rotated * sign if inverse else rotated).to(x.dtype)


def _hadamard(x: Tensor) -> Tensor:
    width, step = x.shape[-1], 1
    while step < width:
        pairs = x.unflatten(-1, (width // (2 * step), 2, step))
        first, second = pairs.unbind(-2)
        x = torch.stack((first + second, first - second), dim=-2).flatten(-3)
        step *= 2
    return x


def _on_cpu(x: Tensor, inverse: bool) -> Tensor:
    """The reference's sums and differences, side by side for all vectors: element by element, not vector by vector."""
    size = x.shape[-1]
    sign = signs(size).unsqueeze(1)
    wide = x.reshape(-1, size).t().float()
    turned = wide.contiguous() if inverse else wide * sign
    begin = 0
    for block in block_sizes(size):
        turned[begin : begin + block] = _columns_transformed(turned[begin : begin + block]).mul_(block**-0.5)
        begin += block
    if inverse:
        turned *= sign
    return turned.t().to(x.dtype, memory_format=torch.contiguous_format).view(x.shape)


def _columns_transformed(x: Tensor) -> Tensor:
    """Hadamard's matrix times [block, vectors]."""
    here, there, step = x, torch.empty_like(x), 1
    while step < len(x):
        pairs, into = (y.view(-1, 2, step, y.shape[1]) for y in (here, there))
        torch.add(pairs[:, 0], pairs[:, 1], out=into[:, 0])
        torch.sub(pairs[:, 0], pairs[:, 1], out=into[:, 1])
        here, there, step = there, torch.empty_like(x) if here is x else here, 2 * step
    return here


@jit
def _sums_and_differences(x, STEP: tl.constexpr, N: tl.constexpr, BLOCK_D: tl.constexpr):  # type: ignore[no-untyped-def]
    """One stage: elements that lie STEP apart become their sum and their difference."""
    pairs = tl.permute(tl.reshape(x, (N, BLOCK_D // (2 * STEP), 2, STEP)), (0, 1, 3, 2))
    first, second = tl.split(pairs)
    pairs = tl.join(first + second, first - second)
    return tl.reshape(tl.permute(pairs, (0, 1, 3, 2)), (N, BLOCK_D))


@jit
def rotate_rows(x, N: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, INVERSE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of a float32 tile [N, BLOCK_D] whose columns from D on are 0; they stay 0."""
    d = tl.arange(0, BLOCK_D)
    mixed = (d + 1).to(tl.uint32)
    mixed = (mixed ^ (mixed >> 16)) * 0x7FEB352D
    mixed = (mixed ^ (mixed >> 15)) * 0x846CA68B
    mixed = mixed ^ (mixed >> 16)
    sign = 1.0 - 2.0 * (mixed & 1).to(tl.float32)
    size = tl.zeros((BLOCK_D,), dtype=tl.int32) + 1
    norm = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for bit in tl.static_range(4, 10):
        if D & (2**bit):
            in_block = (d >= (D >> (bit + 1) << (bit + 1))) & (d < (D >> bit << bit))
            size = tl.where(in_block, 2**bit, size)
            norm = tl.where(in_block, (2.0**bit) ** -0.5, norm)
    if not INVERSE:
        x = x * sign[None, :]
    for stage in tl.static_range(0, 9):
        if 2**stage < D:
            x = tl.where((size > 2**stage)[None, :], _sums_and_differences(x, 2**stage, N, BLOCK_D), x)
    x = x * norm[None, :]
    if INVERSE:
        x = x * sign[None, :]
    return x


@jit
def _fwht_kernel(  # type: ignore[no-untyped-def]
    x_ptr, out_ptr, rows,
    D: tl.constexpr, BLOCK_D: tl.constexpr, N: tl.constexpr, INVERSE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)  # rows * D passes 2**31 on long contexts
    d = tl.arange(0, BLOCK_D)
    inside = (row < rows)[:, None] & (d < D)[None, :]
    at = row[:, None] * D + d[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    x = rotate_rows(x, N, D, BLOCK_D, INVERSE)
    tl.store(out_ptr + at, to_bfloat16(x) if out_ptr.dtype.element_ty == tl.bfloat16 else x, mask=inside)


_ROWS = 16


def fwht(x: Tensor, inverse: bool = False) -> Tensor:
    """R x, or R⁻¹ x. Raises InvalidArgument."""
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise InvalidArgument("x", x.dtype, "float32, float16 or bfloat16")
    if x.ndim < 1 or x.shape[-1] % 16 or not 16 <= x.shape[-1] <= MOST_HEAD_SIZE:
        raise InvalidArgument("x", tuple(x.shape), f"[..., head_size], a multiple of 16 up to {MOST_HEAD_SIZE}")
    if x.numel() == 0:
        return torch.empty_like(x)
    if implementation(x) == "torch":
        return _on_cpu(x, inverse)
    if not x.is_contiguous():
        raise InvalidArgument("x", f"stride {x.stride()}", "contiguous")
    out, size = torch.empty_like(x), x.shape[-1]
    rows = x.numel() // size
    # No product may be fused with a sum: the bits would not be those of the reference.
    _fwht_kernel[(triton.cdiv(rows, _ROWS),)](
        x, out, rows, D=size, BLOCK_D=triton.next_power_of_2(size), N=_ROWS, INVERSE=inverse, enable_fp_fusion=False
    )
    return out


def compile_cases(head_size: int) -> Iterator[CompileCase]:
    """What is compiled ahead of time."""
    block = triton.next_power_of_2(head_size)
    for inverse in (False, True):
        yield CompileCase(
            name=f"fwht {'inverse ' if inverse else ''}{head_size}",
            kernel=_fwht_kernel,
            signature={"x_ptr": "*fp32", "out_ptr": "*fp32", "rows": "i64"},
            constexprs={"D": head_size, "BLOCK_D": block, "N": _ROWS, "INVERSE": inverse},
            options={"enable_fp_fusion": False},
        )
