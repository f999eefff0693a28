"""A purge: nothing matches from that moment, everything is zeroed, and the receipt says how much that was."""

import pytest

from engine_agent.cache.errors import InvalidValue, UnknownNamespace
from engine_agent.cache.operations import Zero
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.prefixes import PurgeReceipt
from tests.unit.cache.making import BLOCK, KEY, PAGE, World, key_of, prompt


def purge(world: World, name: str = "acme", *, epoch: int = 2) -> PurgeReceipt:
    return world.manager.purge(name, key=key_of(name, epoch), epoch=epoch)


def zeroed_pages(world: World) -> set[int]:
    return {page for one in world.manager.take_operations() if isinstance(one, Zero) for page in one.pages}


def test_nothing_from_before_matches_and_the_receipt_counts_it() -> None:
    world = World()
    pages: set[int] = set()
    for seed in range(3):
        sequence, _ = world.start(prompt(4, seed=seed))
        pages |= set(sequence.pages[:4])
        world.manager.release(sequence)
    receipt = purge(world)
    assert (receipt.namespace, receipt.epoch, receipt.blocks, receipt.bytes) == ("acme", 2, 12, 12 * PAGE)
    assert receipt.is_done
    assert zeroed_pages(world) == pages
    assert world.device.used_bytes == 0
    assert world.run(prompt(4)).cached_blocks == 0
    assert world.run(prompt(4)).cached_blocks == 4


def test_others_keep_theirs() -> None:
    world = World()
    world.namespace("bolt", NamespacePolicy())
    world.run(prompt(4))
    world.run(prompt(4), "bolt")
    purge(world)
    assert world.cached_blocks(prompt(4), "bolt") == 4


def test_blocks_in_flight_finish_and_are_then_freed_and_zeroed() -> None:
    world = World()
    running, _ = world.start(prompt(3, extra=2))
    pages = set(running.pages)
    receipt = purge(world)
    assert (receipt.blocks, receipt.sequences_left) == (0, 1)
    assert world.manager.take_receipts() == []
    world.check()
    assert world.manager.grow(running, range(2 * BLOCK)) is None
    pages |= set(running.pages)
    world.manager.fill(running, len(running.tokens))
    assert world.manager.stats("acme").resident_blocks == 0, "what it still fills is not kept"
    world.manager.release(running)
    done = world.manager.take_receipts()
    assert [(one.blocks, one.bytes, one.is_done) for one in done] == [(6, 6 * PAGE, True)]
    assert zeroed_pages(world) == pages
    assert world.manager.take_receipts() == []
    world.check()


def test_shared_pages_in_flight_are_counted_once() -> None:
    world = World()
    parent, _ = world.start(prompt(3, extra=2))
    child = world.manager.fork(parent)
    other, _ = world.start(prompt(3, extra=1))
    assert purge(world).sequences_left == 3
    late = world.manager.fork(child)
    for sequence in (parent, late, other, child):
        world.manager.release(sequence)
        world.check()
    [done] = world.manager.take_receipts()
    assert done.blocks == 3 + 1 + 1
    assert world.device.used_bytes == 0


def test_a_block_expired_in_flight_and_computed_again_is_freed_once() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10, ttl_mode="absolute"))
    old, _ = world.start(prompt(3))
    world.clock.advance(10)
    new, _ = world.start(prompt(3))
    purge(world)
    world.check()
    world.manager.release(old)
    world.check()
    world.manager.release(new)
    world.check()
    assert world.device.used_bytes == 0


def test_a_request_hashed_before_the_purge_and_admitted_after_belongs_to_the_new_epoch() -> None:
    world = World()
    world.run(prompt(3))
    early = world.sequence(prompt(3))
    purge(world)
    answer = world.manager.admit(early)
    assert getattr(answer, "cached_blocks", None) == 0
    world.manager.fill(early, len(early.tokens))
    world.manager.release(early)
    assert world.cached_blocks(prompt(3)) == 3
    world.check()


def test_a_new_epoch_in_a_snapshot_is_a_purge() -> None:
    world = World()
    world.run(prompt(3))
    receipt = world.manager.set_namespace("acme", key=key_of("acme", 5), epoch=5, policy=NamespacePolicy())
    assert receipt
    assert receipt.blocks == 3
    again = world.manager.set_namespace("acme", key=key_of("acme", 5), epoch=5, policy=NamespacePolicy())
    assert again is None


def test_epochs_never_go_back_and_keys_change_with_them_only() -> None:
    world = World()
    with pytest.raises(InvalidValue, match="epoch: expected a whole number above 1, found 1"):
        purge(world, epoch=1)
    with pytest.raises(InvalidValue, match="epochs never go back"):
        world.manager.set_namespace("acme", key=KEY, epoch=0, policy=NamespacePolicy())
    with pytest.raises(InvalidValue, match="a new key needs a new epoch"):
        world.manager.set_namespace("acme", key=KEY, epoch=1, policy=NamespacePolicy())
    with pytest.raises(UnknownNamespace):
        purge(world, "bolt")


def test_a_purge_reaches_every_tier() -> None:
    world = World(pages=8, host_pages=16, policy=NamespacePolicy(offload="host"))
    for seed in range(3):
        for _ in range(2):
            world.run(prompt(3, seed=seed))
    assert world.manager.stats("acme").tiers[1].resident_bytes > 0
    world.manager.take_operations()
    receipt = purge(world)
    stats = world.manager.stats("acme")
    assert [tier.resident_bytes for tier in stats.tiers] == [0, 0]
    zeros = [one for one in world.manager.take_operations() if isinstance(one, Zero)]
    assert {zero.tier for zero in zeros} == {"device", "host"}
    assert receipt.bytes == sum(len(zero.pages) for zero in zeros) * PAGE
    assert world.run(prompt(3)).cached_blocks == 0
    world.check()


def test_a_purge_forgets_why_older_blocks_had_gone() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10))
    world.run(prompt(3))
    world.clock.advance(10)
    world.manager.tick()
    assert world.manager.stats("acme").ghost_blocks == 3
    purge(world)
    assert world.manager.stats("acme").ghost_blocks == 0
    assert world.run(prompt(3)).miss_reason == "cold"
