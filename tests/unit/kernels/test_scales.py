"""Scale sets: an identity for what changes stored bytes."""

import pytest
import torch

from kernels.errors import InvalidArgument
from kernels.scales import ScaleSet, neutral_scales
from tests.unit.kernels.making import make_layout, make_scales

LAYOUT = make_layout(layers=2, kv_heads=3, head_size=32)


def test_a_set_that_changes_nothing_has_no_digest() -> None:
    assert neutral_scales(LAYOUT).digest == ""
    assert ScaleSet(torch.ones(2, 3), torch.ones(2, 3), torch.zeros(2, 3, 32)).digest == ""


def test_every_bit_of_a_set_is_in_its_digest() -> None:
    scales = make_scales(LAYOUT)
    digests = {scales.digest, ScaleSet(scales.keys, scales.values).digest, ScaleSet(scales.values, scales.keys).digest}
    for tensor in (scales.keys, scales.values, scales.key_means):
        assert tensor is not None
        first = tensor.flatten()[0].clone()
        tensor.view(-1)[0] = torch.nextafter(first, first + 1)
        digests.add(scales.digest)
        tensor.view(-1)[0] = first

    assert len(digests) == 6
    assert make_scales(LAYOUT).digest == scales.digest


def test_a_digest_does_not_depend_on_how_the_numbers_lie_in_memory() -> None:
    keys = torch.rand(3, 2).T + 0.5

    assert ScaleSet(keys, keys).digest == ScaleSet(keys.contiguous(), keys.contiguous()).digest


def test_a_layers_numbers_lie_side_by_side_however_they_were_given() -> None:
    strided = torch.rand(3, 2).T + 0.5
    layer = ScaleSet(strided, strided, torch.randn(2, 32, 3).transpose(1, 2)).layer(1)

    assert layer.key_mean is not None
    assert all(tensor.is_contiguous() for tensor in (layer.key, layer.value, layer.key_mean))
    assert torch.equal(layer.key, strided[1])


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf"), 1e-40, 3e38])
@pytest.mark.parametrize("name", ["keys", "values"])
def test_a_scale_that_cannot_be_divided_by_is_refused(name: str, wrong: float) -> None:
    fields = {"keys": torch.ones(2, 3), "values": torch.ones(2, 3)}
    fields[name][1, 2] = wrong

    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        ScaleSet(**fields)


def test_shapes_and_dtypes_that_do_not_fit_together_are_refused() -> None:
    ones = torch.ones(2, 3)
    for arguments in (
        (ones.double(), ones),
        (ones, torch.ones(3, 2)),
        (ones[0], ones[0]),
        (ones, ones, torch.zeros(3, 2, 32)),
        (ones, ones, torch.full((2, 3, 32), float("nan"))),
    ):
        with pytest.raises(InvalidArgument):
            ScaleSet(*arguments)
