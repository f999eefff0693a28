"""The garbage collector interrupts no start of a control plane's process."""

import gc
from collections.abc import Iterator

import pytest

from controlplane.cli import main
from controlplane.common.collector import ALLOCATIONS

PYTHONS_OWN = (700, 10, 10)


@pytest.fixture
def fresh() -> Iterator[None]:
    """As in a process that has just started."""
    before = gc.get_threshold()
    gc.set_threshold(*PYTHONS_OWN)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("fresh")
def test_every_command_collects_less_often(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["secrets"]) == 0
    assert "LUMINET_MASTER_KEY" in capsys.readouterr().out
    assert gc.get_threshold()[0] == ALLOCATIONS
