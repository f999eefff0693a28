"""Who may hold how much, and who gives way: limits, reservations, weights, and the ledger that remembers."""

import pytest

from engine_agent.cache.ledger import OTHERS, Ledger, Pair
from engine_agent.cache.manager import Deferred
from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.making import BLOCK, PAGE, World, prompt


def flood(world: World, name: str, *, prompts: int, blocks: int = 4, first: int = 1000) -> None:
    for seed in range(first, first + prompts):
        world.run(prompt(blocks, seed=seed), name)


def test_the_least_recently_used_goes_first_and_leaves_before_their_parents() -> None:
    world = World(pages=8)
    world.run(prompt(3))
    world.run(prompt(3, seed=1))
    world.run(prompt(1, seed=2, extra=0)[:BLOCK])
    world.run(prompt(2, seed=3, extra=1))
    assert [world.cached_blocks(prompt(3, seed=seed)) for seed in (0, 1)] == [1, 3]
    world.run(prompt(3))
    assert world.cached_blocks(prompt(3)) == 3
    world.check()


def test_blocks_in_use_are_never_evicted() -> None:
    world = World(pages=8)
    running, _ = world.start(prompt(4))
    flood(world, "acme", prompts=10, blocks=2)
    assert world.cached_blocks(prompt(4)) == 4
    world.manager.release(running)


def test_a_limit_is_never_passed_and_costs_its_owner_alone() -> None:
    world = World(pages=20, policy=NamespacePolicy(limit_share=0.5))
    world.namespace("bolt", NamespacePolicy())
    world.run(prompt(8), "bolt")
    for seed in range(20):
        world.run(prompt(4, seed=seed))
        assert world.manager.stats("acme").resident_bytes <= 10 * PAGE
    assert world.cached_blocks(prompt(8), "bolt") == 8
    assert world.run(prompt(4)).miss_reason == "quota"
    assert world.run(prompt(4, seed=10)).evicted_by == "acme"


def test_what_is_in_use_up_to_the_limit_makes_the_next_wait() -> None:
    world = World(pages=20, policy=NamespacePolicy(limit_share=0.5))
    running, _ = world.start(prompt(5))
    assert world.manager.admit(world.sequence(prompt(4, seed=1))) == Deferred("limit", PAGE)
    world.manager.release(running)


def test_a_lowered_limit_holds_at_once_and_for_what_is_in_use_at_its_release() -> None:
    world = World(pages=20)
    running, _ = world.start(prompt(5))
    world.run(prompt(6, seed=1))
    world.namespace("acme", NamespacePolicy(limit_share=0.2))
    assert world.manager.stats("acme").resident_bytes == 6 * PAGE
    world.manager.release(running)
    assert world.manager.stats("acme").resident_bytes == 4 * PAGE
    world.check()


def test_two_equals_end_up_with_half_each_however_one_floods() -> None:
    world = World(pages=40)
    world.namespace("bolt", NamespacePolicy())
    for seed in range(5):
        world.run(prompt(4, seed=seed))
    flood(world, "bolt", prompts=200)
    assert [world.cached_blocks(prompt(4, seed=seed)) for seed in range(5)] == [4] * 5
    assert world.manager.stats("acme").resident_bytes == 20 * PAGE


def test_what_is_contended_goes_by_weight() -> None:
    world = World(pages=40, policy=NamespacePolicy(weight=3))
    world.namespace("bolt", NamespacePolicy(weight=1))
    for round_ in range(30):
        flood(world, "acme", prompts=2, first=round_ * 10)
        flood(world, "bolt", prompts=2, first=round_ * 10)
    held = {name: world.manager.stats(name).resident_bytes / PAGE for name in ("acme", "bolt")}
    assert abs(held["acme"] - 30) <= 5
    assert held["acme"] + held["bolt"] >= 39


def test_a_reservation_cannot_be_taken_and_is_lent_while_idle() -> None:
    world = World(pages=40, policy=NamespacePolicy(reserved_share=0.25))
    world.namespace("bolt", NamespacePolicy(weight=100))
    flood(world, "bolt", prompts=20)
    assert world.manager.stats("bolt").resident_bytes >= 39 * PAGE, "lent"
    for seed in range(2):
        world.run(prompt(5, seed=seed, extra=0))
    flood(world, "bolt", prompts=50, first=5000)
    assert world.manager.stats("acme").resident_bytes == 10 * PAGE
    assert world.cached_blocks(prompt(5)) == 5
    world.check()


def test_a_lent_reservation_comes_back_as_work_in_flight_ends() -> None:
    world = World(pages=20, policy=NamespacePolicy(reserved_share=0.5))
    world.namespace("bolt", NamespacePolicy())
    running = [world.start(prompt(4, seed=seed), "bolt")[0] for seed in range(4)]
    wanted = world.sequence(prompt(6))
    assert world.manager.admit(wanted) == Deferred("pool", 7 * PAGE)
    world.manager.release(running[0])
    world.manager.release(running[1])
    assert not isinstance(world.manager.admit(wanted), Deferred)
    world.check()


def test_the_ledger_says_who_displaced_whom() -> None:
    world = World(pages=20)
    world.namespace("bolt", NamespacePolicy(weight=100))
    flood(world, "acme", prompts=4)
    flood(world, "bolt", prompts=4)
    displaced = {(pair.victim, pair.by, pair.cause): entry for pair, entry in world.manager.ledger.pairs().items()}
    taken = displaced["acme", "bolt", "pressure"]
    assert taken.blocks == world.manager.stats("acme").counters.evicted_blocks > 0
    assert taken.bytes == taken.blocks * PAGE
    assert world.run(prompt(4, seed=1000)).evicted_by == "bolt"


def test_a_full_ledger_keeps_its_sums() -> None:
    ledger = Ledger(most_pairs=2)
    for number in range(10):
        ledger.record(Pair(f"victim-{number}", "by", "pressure", "device"), blocks=3, size=300, demoted=False, now=1.0)
    pairs = ledger.pairs()
    assert len(pairs) == 3
    assert pairs[Pair(OTHERS, OTHERS, "pressure", "device")].blocks == 24
    assert sum(entry.blocks for entry in pairs.values()) == 30


@pytest.mark.parametrize("kv_format", ["bf16", "int4"])
def test_any_mix_of_formats_shares_one_pool(kv_format: str) -> None:
    world = World(pages=256, page_bytes={"bf16": 256, "fp8": 132, "int4": 68})
    for seed in range(60):
        world.run(prompt(6, seed=seed), kv_format="fp8")
    for seed in range(60):
        world.run(prompt(6, seed=seed), kv_format=kv_format)
    assert world.cached_blocks(prompt(6, seed=59), kv_format=kv_format) == 6
    assert world.cached_blocks(prompt(6, seed=0), kv_format="fp8") < 6
    world.check()
