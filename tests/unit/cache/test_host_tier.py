"""The host tier: where evicted blocks go instead of away, and come back from."""

from engine_agent.cache.books import CacheLimits
from engine_agent.cache.manager import Admitted
from engine_agent.cache.operations import Demote, Load
from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.making import PAGE, World, prompt

HOST = NamespacePolicy(ttl_seconds=100, offload="host")


def warm(world: World, seed: int, *, blocks: int = 4) -> None:
    """Run twice: what was hit once is worth keeping."""
    for _ in range(2):
        world.run(prompt(blocks, seed=seed))


def tiers(world: World, name: str = "acme") -> list[int]:
    return [tier.resident_bytes // PAGE for tier in world.manager.stats(name).tiers]


def test_an_evicted_block_goes_to_the_host_and_is_loaded_at_the_next_hit() -> None:
    world = World(pages=9, host_pages=16, policy=HOST)
    warm(world, 0)
    warm(world, 1)
    assert tiers(world) == [8, 0]
    world.manager.take_operations()
    running, _ = world.start(prompt(4, seed=2))
    demotions = [one for one in world.manager.take_operations() if isinstance(one, Demote)]
    assert len(demotions) == 4
    world.manager.release(running)
    again, answer = world.start(prompt(4))
    assert answer == Admitted(16, 4, 4, "none", None)
    loads = [one for one in world.manager.take_operations() if isinstance(one, Load)]
    assert {load.host_page for load in loads} <= {one.host_page for one in demotions}
    assert [load.page for load in loads] == again.pages[:4]
    world.check()


def test_what_was_never_hit_is_not_worth_the_copy() -> None:
    world = World(pages=9, host_pages=16, policy=HOST)
    for seed in range(4):
        world.run(prompt(4, seed=seed))
    assert tiers(world)[1] == 0
    assert world.run(prompt(4)).miss_reason == "evicted"


def test_without_offload_nothing_reaches_the_host() -> None:
    world = World(pages=9, host_pages=16, policy=NamespacePolicy())
    for seed in range(4):
        warm(world, seed)
    assert tiers(world) == [8, 0]


def test_what_is_about_to_expire_is_not_worth_the_copy() -> None:
    world = World(pages=9, host_pages=16, policy=HOST, limits=CacheLimits(demote_least_seconds=30))
    warm(world, 0)
    world.clock.advance(71)
    warm(world, 1, blocks=7)
    assert tiers(world)[1] == 0


def test_the_same_ttl_goes_on_in_the_host_tier() -> None:
    world = World(pages=9, host_pages=16, policy=HOST)
    warm(world, 0)
    world.clock.advance(60)
    warm(world, 1, blocks=7)
    assert tiers(world)[1] == 3
    world.clock.advance(39.5)
    assert world.cached_blocks(prompt(4)) == 4
    world.clock.advance(0.5)
    assert world.cached_blocks(prompt(4)) == 0
    assert tiers(world)[1] == 0
    assert world.run(prompt(4)).miss_reason == "expired"
    world.check()


def test_the_host_copy_stays_after_a_load_so_the_next_demotion_costs_nothing() -> None:
    world = World(pages=9, host_pages=16, policy=HOST)
    warm(world, 0)
    warm(world, 1, blocks=7)
    world.run(prompt(4))
    world.manager.take_operations()
    copied = world.manager.stats("acme").counters.demoted_blocks
    warm(world, 2, blocks=7)
    demoted = [one for one in world.manager.take_operations() if isinstance(one, Demote)]
    assert world.cached_blocks(prompt(4)) == 4
    assert world.manager.stats("acme").counters.demoted_blocks - copied == len(demoted)
    world.check()


def test_a_full_host_drops_its_own_oldest() -> None:
    world = World(pages=9, host_pages=8, policy=HOST)
    for seed in range(6):
        warm(world, seed)
    assert tiers(world) == [8, 8]
    assert world.run(prompt(4)).miss_reason == "evicted"
    assert world.cached_blocks(prompt(4, seed=3)) > 0
    world.check()


def test_the_limit_and_the_fair_share_hold_in_the_host_tier_too() -> None:
    world = World(pages=8, host_pages=20, policy=NamespacePolicy(ttl_seconds=100, offload="host", limit_share=0.5))
    world.namespace("bolt", HOST)
    for seed in range(12):
        for _ in range(2):
            world.run(prompt(3, seed=seed))
            world.run(prompt(3, seed=seed), "bolt")
    assert tiers(world)[1] <= 10
    assert tiers(world, "bolt")[1] >= 9
    world.check()


def test_a_prompt_partly_on_each_tier_is_one_hit() -> None:
    world = World(pages=9, host_pages=16, policy=HOST)
    warm(world, 0, blocks=6)
    running, _ = world.start(prompt(3, seed=1))
    assert 0 < tiers(world)[1] < 6
    world.manager.release(running)
    again, answer = world.start(prompt(6))
    assert answer.cached_blocks == 6
    assert 0 < answer.loaded_blocks < 6
    assert len(set(again.pages)) == 7
    world.manager.release(again)
    world.check()


def test_a_host_block_computed_again_in_a_longer_prompt_is_one_block() -> None:
    world = World(pages=9, host_pages=16, policy=HOST)
    warm(world, 0, blocks=3)
    warm(world, 1, blocks=7)
    first, second = world.sequence(prompt(3)), world.sequence(prompt(3))
    world.manager.admit(first)
    assert isinstance(world.manager.admit(second), Admitted)
    assert first.pages[:3] == second.pages[:3]
    world.manager.release(first)
    world.manager.release(second)
    world.check()


def test_a_prefix_whose_host_copies_make_room_for_its_own_next_blocks_keeps_all_its_pages() -> None:
    world = World(pages=9, host_pages=4, policy=HOST)
    warm(world, 0)
    warm(world, 1, blocks=7)
    world.run(prompt(4))
    warm(world, 1, blocks=4)
    longer = [*prompt(4, extra=0), *prompt(2, seed=2)]
    before = world.start(prompt(4))[0]
    kept = before.pages[:4]
    world.manager.release(before)
    running, answer = world.start(longer)
    assert answer.cached_blocks == 4
    assert answer.loaded_blocks == 0
    assert running.pages[:4] == kept
    assert len(running.pages) == 7
    assert world.manager.stats("acme").counters.demoted_blocks > 3
    world.manager.release(running)
    world.check()
