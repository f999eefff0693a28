"""Products whose rows do not notice each other, packed and plain."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from engine_agent.engine.matrix import ROWS, Matrix, PackedMatrix, PlainMatrix, can_pack, matrix

SHAPES = [(33, 17), (96, 64), (64, 2816)]  # the last is long enough for other kernels to be taken
SOME = (1, 2, 3, 5, 7, 8, 17, 64, 65, 129)


def made(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    chance = torch.Generator().manual_seed(rows)
    x, weight = torch.randn(180, columns, generator=chance), torch.randn(rows, columns, generator=chance)
    return x.to(dtype), (weight / columns**0.5).to(dtype), torch.randn(rows, generator=chance).to(dtype)


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", [PlainMatrix, matrix])
def test_a_rows_bits_do_not_depend_on_how_many_rows_there_are(
    kind: type[Matrix], shape: tuple[int, int], dtype: torch.dtype
) -> None:
    """What a prefix hit stands on. Of torch's own products of one to three rows it does not hold."""
    x, weight, bias = made(*shape, dtype)
    for product in (kind(weight), kind(weight, bias)):  # type: ignore[call-arg]
        whole = product(x)
        for rows in SOME:
            assert torch.equal(product(x[:rows]), whole[:rows]), rows
            assert torch.equal(product(x[40 : 40 + rows]), whole[40 : 40 + rows]), rows


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str)
def test_a_packed_product_is_the_product(dtype: torch.dtype, error: float) -> None:
    x, weight, bias = made(80, 48, dtype)
    torch.testing.assert_close(
        matrix(weight, bias)(x).float(), x.float() @ weight.float().T + bias.float(), atol=error, rtol=error
    )
    assert matrix(weight)(x[:1]).shape == (1, 80)
    assert ROWS > 1


def test_what_cannot_be_packed_is_multiplied_all_the_same() -> None:
    weight = torch.randn(8, 16, dtype=torch.float64)
    assert not can_pack(weight)
    assert isinstance(matrix(weight), PlainMatrix)
    assert isinstance(matrix(weight.float()), PackedMatrix) == torch.backends.mkldnn.is_available()
