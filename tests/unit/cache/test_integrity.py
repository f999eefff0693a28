"""The integrity check finds what is wrong: each fault here is planted by hand, as no caller could."""

from collections.abc import Callable

import pytest

from engine_agent.cache.index import Run
from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.making import World, prompt


def first_run(world: World) -> Run:
    tree = next(iter(world.manager.cache.namespace("acme").trees.values()))
    return next(run for run in tree.runs() if not run.is_hollow)


def lose_a_page(world: World) -> None:
    first_run(world).copies[0].pages.pop()  # type: ignore[union-attr]


def share_a_page(world: World) -> None:
    first_run(world).copies[0].pages[0] = first_run(world).copies[0].pages[1]  # type: ignore[union-attr]


def forget_a_holder(world: World) -> None:
    first_run(world).holders += 1


def miscount(world: World) -> None:
    world.manager.cache.namespace("acme").counters.inserted_blocks += 1


def overcharge(world: World) -> None:
    world.manager.cache.namespace("acme").accounts[0].resident_bytes += 100


def charge_another_format(world: World) -> None:
    account = world.manager.cache.namespace("acme").accounts[0]
    account.resident_by_format["bf16"] = account.resident_by_format.pop("fp8")


def hide_from_eviction(world: World) -> None:
    world.manager.cache.namespace("acme").accounts[0].idle_bytes -= 100


def unhook(world: World) -> None:
    run = first_run(world)
    run.start += 1


def pin_while_idle(world: World) -> None:
    first_run(world).pins += 1


@pytest.mark.parametrize(
    "plant",
    [
        lose_a_page,
        share_a_page,
        forget_a_holder,
        miscount,
        overcharge,
        charge_another_format,
        hide_from_eviction,
        unhook,
        pin_while_idle,
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[World], None]) -> None:
    world = World(policy=NamespacePolicy())
    world.run(prompt(4))
    world.start(prompt(3, seed=1))
    assert world.manager.check_integrity() == []
    plant(world)
    assert world.manager.check_integrity() != []
