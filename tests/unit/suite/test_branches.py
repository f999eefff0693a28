"""Shares of branches by package, and when one is lower than it was."""

import pytest

from tests.suite.branches import Branches, by_package, lowered


@pytest.fixture
def packages() -> dict[str, Branches]:
    return by_package(
        {
            "controlplane/rollouts/deep/a.py": Branches(3, 4),
            "controlplane/rollouts/b.py": Branches(1, 4),
            "controlplane/cli.py": Branches(0, 0),
        }
    )


def test_packages_are_two_folders_deep(packages: dict[str, Branches]) -> None:
    assert packages == {"controlplane": Branches(0, 0), "controlplane/rollouts": Branches(4, 8)}
    assert packages["controlplane/rollouts"].percent == 50
    assert packages["controlplane"].percent == 100


def test_lower_share_is_named(packages: dict[str, Branches]) -> None:
    assert list(lowered(packages, {"controlplane/rollouts": 50.0, "controlplane/gone": 90.0})) == []
    assert list(lowered(packages, {"controlplane/rollouts": 50.1})) == [
        "controlplane/rollouts: 50.0 % of its branches are taken, 50.1 % were"
    ]
