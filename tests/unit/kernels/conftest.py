"""Fixtures of the kernels' tests: each op in each implementation there is here."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kernels.matrix import IMPLEMENTATIONS

if TYPE_CHECKING:
    from kernels.dispatch import Implementation

NO_COMPILER = "NO C COMPILER: what kernels/native computes is NOT TESTED here ({})"


@pytest.fixture(params=IMPLEMENTATIONS["implementation"])
def implementation(request: pytest.FixtureRequest) -> Iterator["Implementation"]:
    """Every op within the test runs as this one; Triton's kernels under its interpreter where there is no GPU."""
    yield from _using(request.param)


@pytest.fixture(params=IMPLEMENTATIONS["each_implementation"])
def each_implementation(request: pytest.FixtureRequest) -> Iterator["Implementation"]:
    """As `implementation`, of ops that are there in C too."""
    yield from _using(request.param)


@pytest.fixture(params=IMPLEMENTATIONS["on_cpu"])
def on_cpu(request: pytest.FixtureRequest) -> Iterator["Implementation"]:
    """As `each_implementation`, without the one whose interpreter takes too long for real sizes."""
    yield from _using(request.param)


@pytest.fixture
def in_c() -> Iterator["Implementation"]:
    """Everything that is there in C runs in C."""
    yield from _using("native")


def _using(name: "Implementation") -> Iterator["Implementation"]:
    from kernels.dispatch import using
    from kernels.native.library import is_ready, status

    if name == "native" and not is_ready():
        pytest.skip(NO_COMPILER.format(status()))
    with using(name):
        yield name


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two busy threads on two cores that others use are slower than one, by far.

    The tests of shapes and of the calculator need no torch, so it is not imported for this.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
