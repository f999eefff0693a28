"""Codecs against what others make of the same bits: every code, every boundary between two codes, every odd input."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from kernels.codecs import int8, minifloat, nvfp4, packed
from kernels.codecs.minifloat import E2M1, E4M3, E5M2, Minifloat
from kernels.codecs.rounding import SMALLEST_SCALE
from kernels.formats import INT2, INT4, INT8, NVFP4, VectorFormat

EIGHT_BITS = [pytest.param(E4M3, torch.float8_e4m3fn, id="e4m3"), pytest.param(E5M2, torch.float8_e5m2, id="e5m2")]
E2M1_VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def all_finite(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every code that torch reads as a finite number, and those numbers."""
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(dtype).float()
    return codes[values.isfinite()], values[values.isfinite()]


@pytest.mark.parametrize(("kind", "dtype"), EIGHT_BITS)
def test_every_finite_8_bit_code_reads_as_torch_reads_it(kind: Minifloat, dtype: torch.dtype) -> None:
    codes, values = all_finite(dtype)

    assert torch.equal(minifloat.decode(codes, kind), values)


@pytest.mark.parametrize(("kind", "dtype"), EIGHT_BITS)
def test_every_finite_8_bit_code_survives_a_round_trip(kind: Minifloat, dtype: torch.dtype) -> None:
    codes, values = all_finite(dtype)

    assert torch.equal(minifloat.encode(values, kind), codes)


@pytest.mark.parametrize(("kind", "dtype"), EIGHT_BITS)
def test_what_lies_between_two_codes_goes_to_the_nearer_and_from_the_middle_to_the_even_one(
    kind: Minifloat, dtype: torch.dtype
) -> None:
    values = all_finite(dtype)[1].unique()
    middle = (values[1:] + values[:-1]) / 2
    probes = torch.cat((middle, middle.nextafter(values[1:]), middle.nextafter(values[:-1])))

    assert torch.equal(minifloat.decode(minifloat.encode(probes, kind), kind), probes.to(dtype).float())


@pytest.mark.parametrize(("kind", "dtype"), EIGHT_BITS)
def test_random_numbers_of_all_sizes_are_encoded_as_torch_encodes_them(kind: Minifloat, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randn(200_000, generator=generator) * torch.logspace(-12, 4, 200_000)
    inside = numbers.clamp(-kind.largest, kind.largest)

    assert torch.equal(minifloat.encode(numbers, kind), inside.to(dtype).view(torch.uint8))


@pytest.mark.parametrize("kind", [E4M3, E5M2, E2M1])
def test_what_is_too_large_saturates_and_makes_no_special_code(kind: Minifloat) -> None:
    huge = torch.tensor([kind.largest, kind.largest * 1.5, 1e30, 3.4e38])
    codes = minifloat.encode(torch.cat((huge, -huge)), kind)

    assert minifloat.decode(codes, kind).tolist() == [kind.largest] * 4 + [-kind.largest] * 4


def test_all_codes_of_e2m1_are_what_the_format_says() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    expected = E2M1_VALUES + [-value for value in E2M1_VALUES]

    assert minifloat.decode(codes, E2M1).tolist() == expected
    assert minifloat.encode(torch.tensor(expected), E2M1).tolist() == list(range(16))


def test_between_two_codes_of_e2m1_the_middle_goes_to_the_even_one() -> None:
    middle = [(low + high) / 2 for low, high in pairwise(E2M1_VALUES)]

    # 0.25→0, 0.75→1, 1.25→1, 1.75→2, 2.5→2, 3.5→4, 5→4: always the code whose last bit is 0
    assert minifloat.decode(minifloat.encode(torch.tensor(middle), E2M1), E2M1).tolist() == [0, 1, 1, 2, 2, 4, 4]


@pytest.mark.parametrize("bits", [4, 2])
def test_every_pair_of_codes_in_a_byte_survives_packing(bits: int) -> None:
    every_byte = torch.arange(256, dtype=torch.uint8).unsqueeze(-1).expand(256, 16).contiguous()
    codes = packed.unpack(every_byte, bits, 16 * (8 // bits))

    assert torch.equal(packed.pack(codes, bits), every_byte)
    assert codes.max() == (1 << bits) - 1


def test_the_first_half_of_a_vector_lies_in_the_low_nibbles() -> None:
    codes = torch.arange(16, dtype=torch.uint8)

    assert packed.pack(codes, 4).tolist() == [low | (low + 8) << 4 for low in range(8)]


def test_int8_codes_are_whole_steps_rounded_half_to_even() -> None:
    vector = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -127.0, 126.4] + [0.0] * 8)
    codes, scale = int8.encode(vector, INT8, None)

    assert scale.view(torch.float32).item() == 1.0
    assert codes.view(torch.int8).tolist()[:8] == [127, 0, 2, 2, 0, -2, -127, 126]


def test_every_int8_code_reads_as_its_number_times_the_scale() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    scale = torch.tensor([0.37]).view(torch.uint8)
    units, scales = int8.units_and_scale(codes, scale, INT8, 256, None)

    assert units.tolist() == [*range(128), *range(-128, 0)]
    assert scales is not None
    assert scales.item() == pytest.approx(0.37)


@pytest.mark.parametrize("kind", [INT4, INT2], ids=lambda kind: kind.name)
def test_levels_span_a_vector_from_its_smallest_to_its_largest_number(kind: VectorFormat) -> None:
    top = (1 << kind.bits) - 1
    numbers = torch.linspace(-1.0, 2.0, 16)
    codes, scales = packed.encode(numbers, kind, None)
    units, scale = packed.units_and_scale(codes, scales, kind, 16, None)

    assert scale is not None
    assert scale.item() == pytest.approx(3.0 / top, rel=1e-5)
    assert (units * scale - numbers).abs().max() <= scale.item() / 2 * 1.001


def test_every_zero_point_of_int4_is_kept_in_the_scale_and_stands_for_zero() -> None:
    seen = set()
    for zero in range(16):
        numbers = torch.tensor([float(level - zero) for level in range(16)])
        codes, scales = packed.encode(numbers, INT4, None)
        units, scale = packed.units_and_scale(codes, scales, INT4, 16, None)
        assert scale is not None
        assert torch.equal(units * scale, numbers)
        seen.add(int(scales.view(torch.int32)) & 15)

    assert seen == set(range(16))


@pytest.mark.parametrize("number", [0.0, 1e-12, -1e-12, 3e-6])
def test_numbers_too_small_for_any_scale_are_zero_and_not_a_division_by_it(number: float) -> None:
    vector = torch.full((32,), number)
    for module, kind in ((int8, INT8), (packed, INT4), (nvfp4, NVFP4)):
        codes, scales = module.encode(vector, kind, None)
        units, scale = module.units_and_scale(codes, scales, kind, 32, None)
        read = units if scale is None else units * scale
        assert bool(read.isfinite().all())
        assert (read - vector).abs().max() <= max(abs(number), SMALLEST_SCALE)


def test_nvfp4_keeps_each_group_under_a_scale_of_its_own() -> None:
    vector = torch.cat((torch.linspace(-6, 6, 16), torch.linspace(-0.06, 0.06, 16)))
    codes, scales = nvfp4.encode(vector, NVFP4, None)
    units, scale = nvfp4.units_and_scale(codes, scales, NVFP4, 32, None)

    assert minifloat.decode(scales, E4M3).tolist() == [1.0, pytest.approx(0.01, rel=0.07)]
    assert scale is None
    assert (units[16:] - vector[16:]).abs().max() < 0.011


def test_a_static_scale_brings_small_numbers_into_nvfp4s_reach() -> None:
    vector = torch.linspace(-1e-3, 1e-3, 32)
    errors = []
    for static in (torch.ones(1), torch.tensor([1e-3 / (6 * 448)])):
        codes, scales = nvfp4.encode(vector, NVFP4, static)
        units, scale = nvfp4.units_and_scale(codes, scales, NVFP4, 32, static)
        assert scale is not None
        errors.append(float((units * scale - vector).norm() / vector.norm()))

    assert errors[1] < 0.15 < 0.5 < errors[0]


def test_the_minifloats_bias_and_largest_number_follow_from_their_bits() -> None:
    for kind in (E4M3, E5M2, E2M1):
        top = 2**kind.exponent - 1
        if kind is E5M2:
            top -= 1  # as in IEEE 754, the last exponent is for infinity and NaN
        mantissa = 2 - math.ldexp(1, -kind.mantissa) * (2 if kind is E4M3 else 1)  # E4M3's last code is NaN
        assert kind.largest == math.ldexp(mantissa, top - kind.bias)
