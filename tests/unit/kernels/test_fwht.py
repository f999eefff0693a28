"""The rotation against a Hadamard matrix written out, in both implementations."""

import pytest
import torch
from torch import Tensor

from kernels.dispatch import Implementation
from kernels.errors import InvalidArgument
from kernels.fwht import block_sizes, fwht, fwht_reference, signs
from tests.kernels.matrix import IMPLEMENTATIONS, matrix

HEAD_SIZES = [32, 64, 80, 96, 128, 256]


def rotation_matrix(head_size: int) -> Tensor:
    """R as a matrix, from the definition: (-1) to the number of ones that two indices have in common."""
    rotation = torch.zeros(head_size, head_size)
    begin = 0
    for size in block_sizes(head_size):
        entries = [[(-1.0) ** (i & j).bit_count() for j in range(size)] for i in range(size)]
        rotation[begin : begin + size, begin : begin + size] = torch.tensor(entries) / size**0.5
        begin += size
    return rotation * signs(head_size)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_it_is_the_product_with_a_randomised_hadamard_matrix(head_size: int, implementation: Implementation) -> None:
    x = normal(5, 3, head_size)

    assert torch.allclose(fwht(x), x @ rotation_matrix(head_size).T, atol=1e-5)


@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_the_inverse_undoes_it(head_size: int, implementation: Implementation) -> None:
    x = normal(17, head_size)

    assert torch.allclose(fwht(fwht(x), inverse=True), x, atol=1e-6)


@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_scores_of_rotated_queries_and_keys_are_what_they_were(head_size: int, implementation: Implementation) -> None:
    queries, keys = normal(4, head_size), normal(9, head_size).flip(0).contiguous()

    assert torch.allclose(fwht(queries) @ fwht(keys).T, queries @ keys.T, atol=1e-4)


def test_one_outlier_is_spread_over_its_block(implementation: Implementation) -> None:
    spike = torch.zeros(1, 80)
    spike[0, 3], spike[0, 70] = 64.0, 16.0

    rotated = fwht(spike).abs()
    assert rotated[0, :64].tolist() == [8.0] * 64
    assert rotated[0, 64:].tolist() == [4.0] * 16


def test_the_signs_are_random_and_the_same_for_ever() -> None:
    assert signs(16).tolist() == [1, -1, -1, -1, 1, -1, 1, 1, -1, -1, -1, 1, -1, 1, -1, -1]
    assert 96 <= int((signs(256) > 0).sum()) <= 160


@pytest.mark.parametrize(("head_size", "sizes"), [(128, [128]), (80, [64, 16]), (96, [64, 32]), (112, [64, 32, 16])])
def test_blocks_are_the_descending_powers_of_two(head_size: int, sizes: list[int]) -> None:
    assert block_sizes(head_size) == sizes


def test_bfloat16_is_rotated_in_float32_and_rounded_once(implementation: Implementation) -> None:
    x = normal(6, 64).to(torch.bfloat16)

    assert torch.equal(fwht(x), fwht(x.float()).to(torch.bfloat16))


@pytest.mark.parametrize(
    ("x", "name"),
    [
        (torch.zeros(4, 64, dtype=torch.int32), "x"),
        (torch.zeros(4, 40), "x"),
        (torch.zeros(4, 1024), "x"),
        (torch.tensor(1.0), "x"),
        (torch.zeros(4, 64, dtype=torch.float64), "x"),
    ],
    ids=["whole numbers", "no multiple of 16", "too long", "no dimension", "float64"],
)
def test_what_it_cannot_rotate_is_refused(x: Tensor, name: str, implementation: Implementation) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        fwht(x)


@matrix(
    {
        "head_size": HEAD_SIZES,
        "is_inverse": [False, True],
        "dtype": [torch.float32, torch.bfloat16, torch.float16],
        "implementation": IMPLEMENTATIONS["implementation"],
    },
    corners=[
        (80, True, torch.bfloat16, "triton"),  # two blocks
        (96, False, torch.float16, "triton"),
        (256, True, torch.float32, "triton"),
    ],
)
def test_the_bits_are_those_of_the_reference(
    head_size: int, is_inverse: bool, dtype: torch.dtype, implementation: Implementation
) -> None:
    x = (normal(11, 3, head_size) * 100).to(dtype)

    assert torch.equal(fwht(x, inverse=is_inverse), fwht_reference(x, inverse=is_inverse))


@pytest.mark.gpu
@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("is_inverse", [False, True])
def test_a_gpu_gives_the_bits_of_the_host(head_size: int, is_inverse: bool) -> None:
    x = normal(32_769, head_size) * 100

    assert torch.equal(fwht(x.cuda(), inverse=is_inverse).cpu(), fwht(x, inverse=is_inverse))
