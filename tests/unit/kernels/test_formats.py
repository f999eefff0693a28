"""Formats: what each costs and loses, and that Triton's device functions make the same bytes as torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.dispatch import jit, tl, triton
from kernels.formats import VectorFormat
from kernels.fwht import fwht
from kernels.vectors import decode, decode_kept, encode, load_vectors, store_vectors
from tests.unit.kernels.making import VECTORS

# Relative error of normal numbers, in per cent, measured once and rounded up: notes on error budgets agree. The
# quantiser's error alone, apart from any kernel's.
ERROR_PERCENT = {
    "fp32": 0.0,
    "bf16": 0.2,
    "e4m3": 2.8,
    "e5m2": 5.5,
    "int8": 0.75,
    "int4": 11.0,
    "nvfp4": 10.0,
    "int2": 55.0,
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def error_percent(x: Tensor, vector: VectorFormat) -> float:
    codes, scales = encode(x, vector)
    read = decode(codes, scales, vector, x.shape[-1])
    return float((read - x).norm() / x.norm() * 100)


@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("name", VECTORS)
def test_a_format_loses_no_more_than_its_budget(name: str, head_size: int) -> None:
    assert error_percent(normal(256, head_size), VECTORS[name]) <= ERROR_PERCENT[name] * 1.1


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("head_size", [32, 64, 80, 96, 128, 256])
def test_codes_and_scales_have_exactly_the_bytes_that_the_layout_says(name: str, head_size: int) -> None:
    codes, scales = encode(normal(3, 2, head_size), VECTORS[name])

    assert codes.shape == (3, 2, VECTORS[name].code_bytes(head_size))
    assert scales.shape == (3, 2, VECTORS[name].scale_bytes(head_size))
    assert codes.dtype == scales.dtype == torch.uint8


def test_rotation_halves_what_outliers_cost_int4() -> None:
    keys = normal(512, 128)
    keys[:, [3, 40, 77, 101]] += torch.tensor([7.0, -9.0, 10.0, -12.0])
    int4 = VECTORS["int4"]
    plain = VectorFormat("int2", bits=4, header_bytes=4)  # int4's codec without its rotation

    assert error_percent(keys, int4) * 2 <= error_percent(keys, plain)


def test_what_is_kept_of_a_rotated_vector_is_rotated() -> None:
    x = normal(64, 64)
    kept = decode_kept(*encode(x, VECTORS["int4"]), VECTORS["int4"], 64)

    assert (kept - fwht(x)).norm() < 0.11 * x.norm() < (kept - x).norm()


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "nvfp4"])
def test_a_static_scale_multiplies_what_is_read(name: str) -> None:
    x, static = normal(4, 64), torch.tensor([[0.5]])
    scaled = encode(x * 0.5, VECTORS[name], static)
    plain = encode(x, VECTORS[name])

    assert torch.equal(scaled[0], plain[0])
    assert torch.equal(decode(*scaled, VECTORS[name], 64, static), decode(*plain, VECTORS[name], 64) * 0.5)


def test_every_format_has_an_error_budget() -> None:
    assert set(VECTORS) == set(ERROR_PERCENT)


@pytest.mark.parametrize("name", [name for name in VECTORS if name != "int2"])
def test_the_largest_numbers_there_are_stay_finite(name: str) -> None:
    numbers = torch.full((2, 32), torch.finfo(torch.float32).max) * torch.tensor([[1.0], [-1.0]])
    read = decode(*encode(numbers, VECTORS[name]), VECTORS[name], 32)

    assert bool(read.isfinite().all())
    assert bool((read[0] > 1).all())
    assert bool((read[1] < -1).all())


@jit
def _round_trip_kernel(  # type: ignore[no-untyped-def]
    arena, x_ptr, units_ptr, scale_ptr, codes_at, scales_at, rows, static_scale,
    VECTOR: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Store and load again: what the kernels of the ops do around their own work."""
    row = tl.arange(0, N)
    d = tl.arange(0, BLOCK_D)
    mask = row < rows
    x = tl.load(x_ptr + row[:, None] * D + d[None, :], mask=mask[:, None] & (d < D)[None, :], other=0.0)
    codes = tl.load(codes_at + row, mask=mask, other=0)
    scales = tl.load(scales_at + row, mask=mask, other=0)
    store_vectors(arena, codes, scales, mask, x, static_scale, VECTOR, D, N, BLOCK_D)
    units, scale = load_vectors(arena, codes, scales, mask, static_scale, VECTOR, D, BLOCK_D)
    tl.store(units_ptr + row[:, None] * BLOCK_D + d[None, :], units.to(tl.float32))
    tl.store(scale_ptr + row, scale)


@pytest.mark.parametrize("head_size", [32, 64, 80])
@pytest.mark.parametrize("name", VECTORS)
def test_triton_stores_the_bytes_that_torch_stores_and_reads_the_numbers_that_torch_reads(
    name: str, head_size: int
) -> None:
    vector, rows, tile = VECTORS[name], 13, 16
    x = (
        normal(rows, head_size) * torch.logspace(-4, 3, rows)[:, None]
    )  # subnormal codes at one end, saturated at the other
    x[3], x[4, 0], x[5, 1] = 0.0, 1e9, -0.0
    static = torch.tensor([0.37]) if vector.has_static_scale else torch.ones(1)
    codes, scales = encode(x, vector, static)
    code_bytes, scale_bytes = vector.code_bytes(head_size), vector.scale_bytes(head_size)
    arena = torch.full((tile * (code_bytes + scale_bytes),), 0xFF, dtype=torch.uint8)
    codes_at = torch.arange(tile) * code_bytes
    scales_at = tile * code_bytes + torch.arange(tile) * scale_bytes
    block = triton.next_power_of_2(head_size)
    units, scale = torch.empty(tile, block), torch.empty(tile)

    given = fwht(x) if vector.is_rotated else x
    _round_trip_kernel[(1,)](
        arena, given, units, scale, codes_at, scales_at, rows, float(static),
        VECTOR=name, D=head_size, BLOCK_D=block, N=tile, enable_fp_fusion=False,
    )  # fmt: skip

    assert torch.equal(arena[: rows * code_bytes].view(rows, code_bytes), codes)
    assert torch.equal(arena[tile * code_bytes :][: rows * scale_bytes].view(rows, scale_bytes), scales)
    assert bool((arena[rows * code_bytes : tile * code_bytes] == 0xFF).all())  # nothing was written for masked rows
    read = (units * scale[:, None])[:rows, :head_size]
    assert torch.equal(read, decode_kept(codes, scales, vector, head_size, static))
    assert not units[rows:].any()
    assert not units[:, head_size:].any()


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8", "int4", "nvfp4", "int2"])
def test_triton_reads_every_byte_of_codes_as_torch_reads_it(name: str) -> None:
    """All 256 of them, in as many vectors as they make. NaN and infinity are never written."""
    vector, head_size = VECTORS[name], 256
    codes = torch.arange(256).to(torch.uint8).view(-1, vector.code_bytes(head_size))
    if name in ("e4m3", "e5m2"):
        kind = torch.float8_e4m3fn if name == "e4m3" else torch.float8_e5m2
        codes[~codes.view(kind).float().isfinite()] = 0
    rows, scales = len(codes), encode(normal(len(codes), head_size), vector)[1]
    arena = torch.cat((codes.flatten(), scales.flatten(), torch.zeros(16, dtype=torch.uint8)))
    units, scale = torch.empty(rows, head_size), torch.empty(rows)

    _load_kernel[(1,)](
        arena, units, scale, CODES=codes.shape[1], SCALES=scales.shape[1], VECTOR=name, D=head_size, N=rows
    )

    assert torch.equal(units * scale[:, None], decode_kept(codes, scales, vector, head_size))


@jit
def _load_kernel(  # type: ignore[no-untyped-def]
    arena, units_ptr, scale_ptr, CODES: tl.constexpr, SCALES: tl.constexpr,
    VECTOR: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row = tl.arange(0, N)
    at = row.to(tl.int64)
    units, scale = load_vectors(arena, at * CODES, N * CODES + at * SCALES, row >= 0, 1.0, VECTOR, D, D)
    tl.store(units_ptr + tl.arange(0, D)[None, :] + row[:, None] * D, units.to(tl.float32))
    tl.store(scale_ptr + row, scale)
