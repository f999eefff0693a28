"""Pinned prefixes: they survive any flood, within a budget, until they end."""

import pytest

from engine_agent.cache.errors import InvalidValue, PinOverBudget, UnknownPin
from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.making import BLOCK, World, key_of, prompt

PINNING = NamespacePolicy(ttl_seconds=10, pin_share=0.5)


def pin(world: World, name: str, blocks: int, *, seed: int = 0, expires_at: float | None = None) -> None:
    world.manager.pin(
        name, "acme", prompt(blocks, seed=seed), kv_format="fp8", model_revision="m", owner="ops", expires_at=expires_at
    )


def residents(world: World) -> dict[str, tuple[str, int, int]]:
    return {one.pin_id: (one.state, one.resident_blocks, one.wanted_blocks) for one in world.manager.pins("acme")}


@pytest.mark.parametrize("resident_first", [True, False])
def test_a_pin_survives_a_flood_of_a_hundred_times_the_pool(resident_first: bool) -> None:
    world = World(pages=20, policy=PINNING)
    if resident_first:
        world.run(prompt(7))
        pin(world, "system", 5)
    else:
        pin(world, "system", 5)
        assert residents(world) == {"system": ("active", 0, 5)}
        world.run(prompt(7))
    for seed in range(1, 500):
        world.run(prompt(4, seed=seed))
    assert residents(world) == {"system": ("active", 5, 5)}
    assert world.cached_blocks(prompt(7)) == 5
    world.check()


def test_a_pin_survives_its_ttl_and_ends_with_its_date() -> None:
    world = World(policy=PINNING)
    world.run(prompt(3))
    pin(world, "system", 3, expires_at=world.clock.seconds + 60)
    world.clock.advance(59)
    assert world.cached_blocks(prompt(3)) == 3
    world.clock.advance(1)
    world.manager.tick()
    assert world.manager.pins("acme") == []
    world.clock.advance(9.5)
    assert world.cached_blocks(prompt(3)) == 3, "its end counts as its last use"
    world.clock.advance(0.5)
    assert world.cached_blocks(prompt(3)) == 0
    world.check()


def test_an_absolute_life_that_passed_under_a_pin_ends_with_it() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10, ttl_mode="absolute", pin_share=0.5))
    world.run(prompt(3))
    pin(world, "system", 3)
    world.clock.advance(50)
    assert world.cached_blocks(prompt(3)) == 3
    world.manager.unpin("acme", "system")
    assert world.cached_blocks(prompt(3)) == 0
    world.check()


def test_pins_stay_within_their_budget() -> None:
    world = World(pages=20, policy=PINNING)
    pin(world, "first", 6)
    with pytest.raises(PinOverBudget, match="500 bytes wanted, 400 bytes left"):
        pin(world, "second", 5, seed=1)
    pin(world, "second", 4, seed=1)
    assert residents(world) == {"first": ("active", 0, 6), "second": ("active", 0, 4)}


def test_a_smaller_budget_keeps_the_oldest_pins_and_a_larger_one_brings_the_others_back() -> None:
    world = World(pages=20, policy=PINNING)
    for seed in range(2):
        world.run(prompt(4, seed=seed))
        pin(world, f"pin-{seed}", 4, seed=seed)
    world.namespace("acme", NamespacePolicy(ttl_seconds=10, pin_share=0.25))
    assert residents(world) == {"pin-0": ("active", 4, 4), "pin-1": ("over_budget", 4, 4)}
    world.namespace("acme", PINNING)
    world.clock.advance(50)
    assert residents(world) == {"pin-0": ("active", 4, 4), "pin-1": ("active", 4, 4)}
    world.check()


def test_a_pin_of_the_same_name_replaces_the_first() -> None:
    world = World(pages=20, policy=PINNING)
    world.run(prompt(6))
    pin(world, "system", 6)
    pin(world, "system", 2)
    assert residents(world) == {"system": ("active", 2, 2)}
    world.clock.advance(10)
    assert world.cached_blocks(prompt(6)) == 2
    world.check()


def test_pins_that_share_a_beginning_end_one_by_one() -> None:
    world = World(policy=PINNING)
    world.run(prompt(8))
    pin(world, "long", 6)
    pin(world, "short", 2)
    world.check()
    world.manager.unpin("acme", "long")
    world.clock.advance(10)
    assert world.cached_blocks(prompt(8)) == 2
    world.manager.unpin("acme", "short")
    world.clock.advance(10)
    assert world.cached_blocks(prompt(8)) == 0
    world.check()


def test_pins_that_wait_cover_just_their_part_of_what_comes() -> None:
    world = World(policy=PINNING)
    pin(world, "long", 6)
    pin(world, "short", 2)
    world.run(prompt(8))
    world.check()
    world.manager.unpin("acme", "long")
    world.clock.advance(10)
    assert world.cached_blocks(prompt(8)) == 2
    world.check()


def test_a_pinned_block_in_use_is_both() -> None:
    world = World(policy=PINNING)
    running, _ = world.start(prompt(4))
    pin(world, "system", 4)
    world.manager.release(running)
    world.clock.advance(100)
    again, answer = world.start(prompt(4))
    assert answer.cached_blocks == 4
    world.manager.unpin("acme", "system")
    world.clock.advance(100)
    assert world.cached_blocks(prompt(4)) == 4
    world.manager.release(again)
    world.check()


def test_a_purge_takes_what_is_pinned_and_the_pin_says_so() -> None:
    world = World(policy=PINNING)
    world.run(prompt(4))
    pin(world, "system", 4)
    receipt = world.manager.purge("acme", key=key_of("acme", 2), epoch=2)
    assert receipt.blocks == 4
    assert residents(world) == {"system": ("purged", 0, 4)}
    pin(world, "system", 4)
    world.run(prompt(4))
    assert residents(world) == {"system": ("active", 4, 4)}
    world.check()


def test_switching_caching_off_and_on_leaves_a_pin_waiting() -> None:
    world = World(policy=PINNING)
    world.run(prompt(4))
    pin(world, "system", 4)
    world.namespace("acme", NamespacePolicy(prefix_caching=False, pin_share=0.5))
    assert residents(world) == {"system": ("disabled", 0, 4)}
    world.namespace("acme", PINNING)
    assert residents(world) == {"system": ("active", 0, 4)}
    world.run(prompt(4))
    world.clock.advance(100)
    assert residents(world) == {"system": ("active", 4, 4)}
    world.check()


def test_pins_nobody_can_mean_are_refused_and_leave_nothing_behind() -> None:
    world = World(policy=PINNING)
    with pytest.raises(InvalidValue, match="at least one full block"):
        world.manager.pin("x", "acme", [1] * (BLOCK - 1), kv_format="fp8", model_revision="m")
    with pytest.raises(InvalidValue, match="expires_at"):
        pin(world, "x", 2, expires_at=world.clock.seconds)
    with pytest.raises(UnknownPin, match="'x'"):
        world.manager.unpin("acme", "x")
    with pytest.raises(PinOverBudget):
        pin(world, "x", 33)
    assert world.manager.pins("acme") == []
    world.check()
    assert world.manager.stats("acme").resident_bytes == 0


def test_a_pin_set_anew_before_its_blocks_came_still_protects_them() -> None:
    world = World(policy=PINNING)
    pin(world, "system", 3)
    pin(world, "system", 3, expires_at=world.clock.seconds + 1000)
    world.check()
    world.run(prompt(3))
    world.clock.advance(50)
    assert residents(world) == {"system": ("active", 3, 3)}
    world.check()


def test_what_is_unpinned_in_use_after_its_age_is_reclaimed() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10, ttl_mode="absolute", pin_share=0.5))
    world.run(prompt(3))
    pin(world, "system", 3)
    running, _ = world.start(prompt(3))
    world.clock.advance(20)
    world.manager.unpin("acme", "system")
    assert world.cached_blocks(prompt(3)) == 0
    world.manager.release(running)
    world.manager.tick()
    assert world.manager.stats("acme").resident_bytes == 0
    world.check()


def test_what_is_unpinned_above_the_limit_goes() -> None:
    world = World(pages=20, policy=PINNING)
    world.run(prompt(6))
    pin(world, "system", 6)
    world.namespace("acme", NamespacePolicy(ttl_seconds=10, pin_share=0.5, limit_share=0.2))
    world.manager.unpin("acme", "system")
    assert world.manager.stats("acme").resident_blocks == 4
    world.check()


def test_room_in_the_budget_goes_to_the_oldest_pin_that_waits() -> None:
    world = World(pages=20, policy=PINNING)
    for seed, name in enumerate(("a", "b", "c")):
        pin(world, name, 3, seed=seed)
    world.namespace("acme", NamespacePolicy(ttl_seconds=10, pin_share=0.3))
    assert [state for state, _, _ in residents(world).values()] == ["active", "active", "over_budget"]
    world.manager.unpin("acme", "a")
    assert [state for state, _, _ in residents(world).values()] == ["active", "active"]


def test_a_pin_ends_when_it_says_also_when_nobody_looked() -> None:
    world = World(policy=PINNING)
    world.run(prompt(3))
    pin(world, "system", 3, expires_at=world.clock.seconds + 60)
    world.clock.advance(70)
    assert world.cached_blocks(prompt(3)) == 0
    world.check()


def test_purged_pins_keep_nothing_of_what_they_pinned() -> None:
    world = World(policy=PINNING)
    pin(world, "system", 3)
    world.manager.purge("acme", key=key_of("acme", 2), epoch=2)
    assert residents(world) == {"system": ("purged", 0, 3)}
    assert len(world.manager.cache.namespace("acme").pins["system"].digests) == 0
    world.manager.unpin("acme", "system")
    assert residents(world) == {}
    world.check()


def test_a_block_on_the_host_is_resident_too() -> None:
    world = World(pages=9, host_pages=9, policy=NamespacePolicy(offload="host", pin_share=0.5))
    for _ in range(2):
        world.run(prompt(3))
    world.run(prompt(8, seed=1))
    pin(world, "system", 3)
    assert residents(world) == {"system": ("active", 3, 3)}
    world.check()
