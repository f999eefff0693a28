"""Fixtures of the kernels' tests: each op in each implementation there is here."""

from collections.abc import Iterator

import pytest
import torch

from kernels.dispatch import Implementation, using


@pytest.fixture(params=["torch", "triton"])
def implementation(request: pytest.FixtureRequest) -> Iterator[Implementation]:
    """Every op within the test runs as this one; Triton's kernels under its interpreter where there is no GPU."""
    name: Implementation = request.param
    with using(name):
        yield name


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two busy threads on two cores that others use are slower than one, by far."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
