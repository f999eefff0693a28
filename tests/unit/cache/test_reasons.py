"""Why the first missed block missed, in truth."""

import math

from engine_agent.cache.books import CacheLimits
from engine_agent.cache.manager import Admitted
from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.making import BLOCK, World, key_of, prompt


def reason(answer: Admitted) -> tuple[str, str | None]:
    return answer.miss_reason, answer.evicted_by


def test_what_was_never_there_is_cold() -> None:
    world = World()
    assert reason(world.run(prompt(3))) == ("cold", None)


def test_every_full_block_hit_is_none_whatever_the_tail() -> None:
    world = World()
    world.run(prompt(3))
    for extra in range(1, BLOCK):
        assert reason(world.run(prompt(3, extra=extra))) == ("none", None)


def test_expired_is_told_also_when_only_the_end_had_expired() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10))
    world.run(prompt(6))
    world.clock.advance(6)
    world.run(prompt(2))
    world.clock.advance(4)
    answer = world.run(prompt(6))
    assert (answer.cached_blocks, reason(answer)) == (2, ("expired", None))


def test_evicted_names_the_namespace_that_needed_the_room() -> None:
    world = World(pages=10)
    world.namespace("bolt", NamespacePolicy(weight=100))
    world.run(prompt(6))
    world.run(prompt(7, seed=1), "bolt")
    assert reason(world.run(prompt(6))) == ("evicted", "bolt")


def test_evicted_by_its_own_traffic_names_itself() -> None:
    world = World(pages=10)
    world.run(prompt(6))
    world.run(prompt(9, seed=1))
    assert reason(world.run(prompt(6))) == ("evicted", "acme")


def test_purged_is_told_from_cold_until_the_blocks_would_have_ended_anyway() -> None:
    for seconds, told in ((0, "purged"), (9.5, "purged"), (10, "cold")):
        world = World(policy=NamespacePolicy(ttl_seconds=10))
        world.run(prompt(3))
        world.manager.purge("acme", key=key_of("acme", 2), epoch=2)
        world.clock.advance(seconds)
        assert reason(world.run(prompt(3, seed=1))) == ("cold", None)
        assert reason(world.run(prompt(3))) == (told, None)


def test_purged_is_told_for_the_block_that_missed_not_for_its_beginning() -> None:
    world = World()
    world.run(prompt(5))
    world.manager.purge("acme", key=key_of("acme", 2), epoch=2)
    world.run(prompt(2))
    answer = world.run(prompt(5))
    assert (answer.cached_blocks, answer.miss_reason) == (2, "purged")
    assert world.run([*prompt(2, extra=0), *prompt(3, seed=4)]).miss_reason == "cold"


def test_another_format_of_the_same_prompt_is_named() -> None:
    world = World(pages=64, page_bytes={"fp8": 100, "int4": 50})
    world.run(prompt(4))
    assert reason(
        world.run(
            prompt(4),
        )
    ) == ("none", None)
    first = world.run(prompt(4), kv_format="int4")
    assert (first.cached_blocks, reason(first)) == (0, ("dtype", None))
    assert reason(world.run(prompt(4), kv_format="int4")) == ("none", None)
    assert reason(world.run(prompt(4), kv_format="int4", salt=b"other")) == ("cold", None)


def test_another_format_counts_only_as_far_as_it_lives() -> None:
    world = World(pages=64, page_bytes={"fp8": 100, "int4": 50}, policy=NamespacePolicy(ttl_seconds=10))
    world.run(prompt(4))
    world.run(prompt(2), kv_format="int4")
    assert world.run(prompt(4), kv_format="int4").miss_reason == "dtype"
    world.clock.advance(10)
    assert world.run(prompt(4), kv_format="int4").miss_reason == "expired"
    assert world.run(prompt(3, seed=2)).miss_reason == "cold"


def test_computed_again_and_gone_again_tells_the_later_reason() -> None:
    world = World(pages=10, policy=NamespacePolicy(ttl_seconds=10))
    world.run(prompt(6))
    world.clock.advance(10)
    assert world.run(prompt(6)).miss_reason == "expired"
    world.run(prompt(9, seed=1))
    assert world.run(prompt(6)).miss_reason == "evicted"


def test_a_branch_computed_again_keeps_the_reason_of_the_rest() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10))
    world.run(prompt(8))
    world.clock.advance(10)
    world.run([*prompt(5, extra=0), *prompt(3, seed=1)])
    answer = world.run(prompt(8))
    assert (answer.cached_blocks, answer.miss_reason) == (5, "expired")
    world.check()


def test_ghosts_are_bounded_and_say_how_far_back_they_reach() -> None:
    world = World(pages=2000, policy=NamespacePolicy(ttl_seconds=10), limits=CacheLimits(ghost_blocks=600))
    assert world.manager.stats("acme").ghost_horizon_seconds == math.inf
    for seed in range(40):
        world.run(prompt(10, seed=seed))
        world.clock.advance(1)
    world.clock.advance(10)
    world.manager.tick()
    stats = world.manager.stats("acme")
    assert 0 < stats.ghost_blocks <= 600
    assert 10 <= stats.ghost_horizon_seconds <= 35
    assert world.run(prompt(10)).miss_reason == "cold"
    assert world.run(prompt(10, seed=39)).miss_reason == "expired"
    world.check()


def test_one_namespace_cannot_make_another_forget() -> None:
    world = World(pages=2000, policy=NamespacePolicy(ttl_seconds=10), limits=CacheLimits(ghost_blocks=600))
    world.namespace("bolt", NamespacePolicy(ttl_seconds=10))
    world.run(prompt(10))
    for seed in range(100):
        world.run(prompt(10, seed=seed), "bolt")
    world.clock.advance(10)
    assert world.run(prompt(10)).miss_reason == "expired"


def test_what_a_prompt_finds_again_and_again_leaves_no_trail() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10))
    for _ in range(300):
        world.run(prompt(4))
        world.clock.advance(10)
    namespace = world.manager.cache.namespace("acme")
    assert namespace.ghosts.blocks <= 4
    assert len(namespace.ghosts) <= 1
    assert len(namespace.by_age) <= 100


def test_forgetting_a_departure_that_was_cut_in_two_forgets_both_parts() -> None:
    world = World(pages=4000, policy=NamespacePolicy(ttl_seconds=10), limits=CacheLimits(ghost_blocks=256))
    world.run(prompt(20))
    world.clock.advance(10)
    world.run([*prompt(8, extra=0), *prompt(2, seed=1)])
    world.clock.advance(10)
    for seed in range(2, 40):
        world.run(prompt(20, seed=seed))
        world.clock.advance(10)
        world.check()
    assert world.run(prompt(20)).miss_reason == "cold"
    assert world.manager.stats("acme").ghost_blocks <= 256
