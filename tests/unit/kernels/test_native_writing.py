"""Writing in C: the reference's bytes, whatever the numbers are."""

import pytest
import torch
from torch import Tensor

from kernels.errors import InvalidArgument
from kernels.formats import KV_FORMATS
from kernels.fwht import signs
from kernels.kv_write import kv_write, kv_write_reference
from kernels.layout import MOST_HEAD_SIZE
from kernels.rope import apply_rope, apply_rope_reference
from kernels.scales import LayerScales
from kernels.tables import Rope, write_table
from tests.kernels.matrix import matrix
from tests.unit.kernels.making import POISON, make_layout, make_scales, poisoned_arena, scattered_pages

pytestmark = pytest.mark.usefixtures("in_c")

TOKENS = 19
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def of_any_size(*shape: int, seed: int) -> Tensor:
    """Numbers from 2⁻⁴⁰ to 2⁴⁰, halves and whole ones that are rounded to even, zeros of both signs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    x[::4] *= 2.0 ** torch.randint(-40, 40, x[::4].shape, generator=generator)
    x[1::4] = torch.randint(-9, 9, x[1::4].shape, generator=generator) / 2
    x[2::4] *= torch.randint(-1, 2, x[2::4].shape, generator=generator)
    return x


def some_rope(tokens: int, head_size: int) -> Rope:
    angles = torch.outer(torch.arange(64.0), 1e4 ** (-torch.arange(head_size // 2) / (head_size // 2)))
    return Rope(angles.cos(), angles.sin(), (torch.arange(tokens) * 7) % 64)


def assert_same_bytes(
    kv_format: str, keys: Tensor, values: Tensor, rope: Rope | None, scales: LayerScales | None = None
) -> None:
    """Also behind the tokens and in the other layers, where both leave what was there."""
    tokens, kv_heads, head_size = keys.shape
    layout = make_layout(kv_format, layers=2, kv_heads=kv_heads, head_size=head_size)
    pages, end = scattered_pages(layout, 1 + tokens // 16)
    arena = poisoned_arena(end + 16)
    places = [divmod(token + 3, 16) for token in range(tokens)]
    table = write_table(arena, layout, [pages[page] for page, _ in places], [slot for _, slot in places])
    scales = make_scales(layout).layer(1) if scales is None else scales
    other = arena.clone()
    refused = kv_write(arena, table, 1, keys, values, scales, rope)
    wanted = kv_write_reference(other, table, 1, keys, values, scales, rope)
    assert torch.equal(arena, other)
    assert torch.equal(refused, wanted)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_any_size(kv_format: str, dtype: torch.dtype) -> None:
    for seed in range(4):
        keys, values = (of_any_size(TOKENS, 2, 64, seed=seed + side).to(dtype) for side in (0, 100))
        assert_same_bytes(kv_format, keys, values, None)
        assert_same_bytes(kv_format, keys, values, some_rope(TOKENS, 64))


@matrix(
    {"kv_format": KV_FORMATS, "head_size": range(16, MOST_HEAD_SIZE + 1, 16)},
    strength=1,  # the loops over a vector's parts are one for all formats of a codec
    corners=[
        *((kv_format, 80) for kv_format in KV_FORMATS),  # a rotation in blocks of 64 and 16, and no power of two
        ("int4", 16),  # the smallest
        ("int4", MOST_HEAD_SIZE),
        ("nvfp4", 16),
        ("nvfp4", MOST_HEAD_SIZE),
        ("int4", 240),  # the most blocks of the rotation: 128, 64, 32 and 16
        ("k8v4", 112),
    ],
)
def test_every_head_size(kv_format: str, head_size: int) -> None:
    keys, values = (of_any_size(TOKENS, 3, head_size, seed=side) for side in (0, 1))
    assert_same_bytes(kv_format, keys, values, some_rope(TOKENS, head_size))


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_every_half_that_there_is(kv_format: str) -> None:
    """Subnormal ones, infinities and NaNs too."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    for part in halves.view(16, 16, 2, 128).unbind():
        assert_same_bytes(kv_format, part, part.flip(0), None)


@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("size", [3.4e38, 1e30, 1e-30, 1e-38, 1e-44, 0.0, -0.0])
def test_the_largest_and_the_smallest_numbers(kv_format: str, size: float) -> None:
    keys = torch.full((4, 2, 64), size)
    keys[1::2, :, ::3] = -size
    assert_same_bytes(kv_format, keys, keys.flip(0), None)
    for scale in (1e-30, 1e30):
        static = torch.full((2,), scale)
        assert_same_bytes(kv_format, keys, keys.flip(0), None, LayerScales(static, static))


@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite(kv_format: str, poison: float) -> None:
    keys, values = (of_any_size(TOKENS, 2, 64, seed=side) for side in (0, 1))
    keys[3, 1, 60:] = poison
    values[::5, 0, 0] = poison
    assert_same_bytes(kv_format, keys, values, None)
    assert_same_bytes(kv_format, keys, values, some_rope(TOKENS, 64))


def test_a_position_that_the_tables_do_not_have_is_refused_before_anything_is_written() -> None:
    layout = make_layout("bf16", head_size=32)
    arena = poisoned_arena(layout.page_bytes)
    table = write_table(arena, layout, [0, 0], [0, 1])
    x, scales = torch.randn(2, 2, 32), make_scales(layout).layer(0)
    for positions in ([0, 64], [-1, 0], [2**40, 0]):
        rope = Rope(*(some_rope(2, 32).cos,) * 2, torch.tensor(positions))
        with pytest.raises(InvalidArgument, match=r"^rope.positions: "):
            kv_write(arena, table, 0, x, x, scales, rope)
    assert bool((arena == POISON).all())


# Turning alone


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", [2, 30, 64, 80, 256, 512])
def test_queries_are_turned_to_the_bit(dtype: torch.dtype, head_size: int) -> None:
    rope = some_rope(TOKENS, head_size)
    fused = of_any_size(TOKENS, 5 * head_size, seed=0).to(dtype)
    x = fused[:, head_size : 4 * head_size].view(TOKENS, 3, head_size)
    for given in (x, x.contiguous(), x.transpose(1, 2).contiguous().transpose(1, 2), x[:0]):
        mine = Rope(rope.cos, rope.sin, rope.positions[: len(given)])
        found, wanted = apply_rope(given, mine), apply_rope_reference(given, mine)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_positions_beyond_the_tables_are_what_they_are_to_torch() -> None:
    rope, x = some_rope(2, 32), torch.randn(2, 1, 32)
    from_the_end = Rope(rope.cos, rope.sin, torch.tensor([-1, 3]))
    assert torch.equal(apply_rope(x, from_the_end), apply_rope_reference(x, from_the_end))
    with pytest.raises(IndexError):
        apply_rope(x, Rope(rope.cos, rope.sin, torch.tensor([0, 64])))


def test_the_signs_of_the_rotation_are_those_of_the_reference() -> None:
    """One vector with a single 1 at a time: its codes tell every sign and every sum."""
    keys = torch.eye(64).view(64, 1, 64)
    assert int((signs(64) < 0).sum()) not in (0, 64)
    assert_same_bytes("int4", keys, -keys, None)
