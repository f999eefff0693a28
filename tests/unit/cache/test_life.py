"""How long blocks match: sliding, absolute, at most so old, by a request's own wish, and by a policy that changes."""

import pytest

from engine_agent.cache.books import CacheLimits
from engine_agent.cache.errors import ClockStandsStill, ClockWentBack, InvalidValue
from engine_agent.cache.policy import NamespacePolicy
from tenants.policy import PolicyFields
from tests.unit.cache.making import BLOCK, PAGE, World, prompt

SLIDING = NamespacePolicy(ttl_seconds=10)
ABSOLUTE = NamespacePolicy(ttl_seconds=10, ttl_mode="absolute")


def test_sliding_ends_so_long_after_the_last_use() -> None:
    world = World(policy=SLIDING)
    world.run(prompt(3))
    world.clock.advance(9.5)
    assert world.run(prompt(3)).cached_blocks == 3
    world.clock.advance(9.5)
    assert world.cached_blocks(prompt(3)) == 3
    world.clock.advance(0.5)
    assert world.cached_blocks(prompt(3)) == 0
    assert world.manager.stats("acme").resident_bytes == 0


def test_a_hit_renews_what_it_hit_and_nothing_beyond() -> None:
    world = World(policy=SLIDING)
    world.run(prompt(6))
    world.clock.advance(6)
    world.run(prompt(6)[: 2 * BLOCK + 1])
    world.clock.advance(5)
    assert world.cached_blocks(prompt(6)) == 2


def test_a_long_answer_does_not_expire_its_own_prompt() -> None:
    world = World(policy=SLIDING)
    running, _ = world.start(prompt(3))
    world.clock.advance(60)
    assert world.cached_blocks(prompt(3)) == 3
    world.manager.release(running)
    world.clock.advance(9.5)
    assert world.run(prompt(3)).cached_blocks == 3


def test_absolute_counts_from_creation_whatever_is_hit() -> None:
    world = World(policy=ABSOLUTE)
    world.run(prompt(3))
    for _ in range(3):
        world.clock.advance(3)
        assert world.run(prompt(3)).cached_blocks == 3
    world.clock.advance(1)
    assert world.run(prompt(3)).miss_reason == "expired"
    world.clock.advance(9.5)
    assert world.run(prompt(3)).cached_blocks == 3


def test_absolute_ends_also_in_flight_and_frees_at_release() -> None:
    world = World(policy=ABSOLUTE)
    running, _ = world.start(prompt(3))
    world.clock.advance(10)
    assert world.cached_blocks(prompt(3)) == 0
    world.check()
    assert world.manager.stats("acme").resident_bytes == 4 * PAGE
    world.manager.release(running)
    assert world.manager.stats("acme").resident_bytes == 0
    world.check()


def test_a_prefix_computed_again_leads_to_what_lived_on_below_it() -> None:
    world = World(policy=ABSOLUTE)
    world.run(prompt(2))
    world.clock.advance(6)
    world.run(prompt(5))
    world.clock.advance(4)
    assert world.cached_blocks(prompt(5)) == 0, "its beginning has expired"
    world.run(prompt(2))
    assert world.cached_blocks(prompt(5)) == 5, "and is there again"
    world.check()
    world.clock.advance(6)
    assert world.cached_blocks(prompt(5)) == 2
    world.check()


def test_expired_in_use_and_computed_again_are_two_copies_of_one_block() -> None:
    world = World(policy=ABSOLUTE)
    old, _ = world.start(prompt(3))
    world.clock.advance(10)
    new, answer = world.start(prompt(3))
    assert (answer.cached_blocks, answer.miss_reason) == (0, "expired")
    assert not set(old.pages) & set(new.pages)
    world.check()
    twin = world.manager.fork(old)
    world.check()
    world.manager.release(new)
    world.manager.release(old)
    world.check()
    world.manager.release(twin)
    world.check()
    assert world.manager.stats("acme").resident_bytes == 3 * PAGE
    assert world.cached_blocks(prompt(3)) == 3


@pytest.mark.parametrize("mode", ["sliding", "absolute"])
def test_nothing_grows_older_than_max_age(mode: str) -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=10, max_age_seconds=8, ttl_mode=mode))  # type: ignore[arg-type]
    running, _ = world.start(prompt(2))
    for _ in range(3):
        world.clock.advance(2)
        assert world.run(prompt(2)).cached_blocks == 2
    world.clock.advance(2)
    assert world.cached_blocks(prompt(2)) == 0
    world.manager.release(running)
    world.check()


def test_only_the_blocks_that_are_old_enough_go() -> None:
    world = World(policy=NamespacePolicy(ttl_seconds=100, max_age_seconds=10))
    running, _ = world.start(prompt(2, extra=0))
    world.clock.advance(4)
    world.manager.grow(running, range(2 * BLOCK))
    world.manager.fill(running, 4 * BLOCK)
    world.clock.advance(6)
    world.check()
    assert world.manager.stats("acme").resident_blocks == 4 - 2
    world.manager.release(running)
    world.check()
    assert world.manager.stats("acme").resident_blocks == 2, "the later two live, and wait for their beginning"
    world.clock.advance(4)
    assert world.manager.stats("acme").resident_blocks == 0
    world.check()


def test_a_request_shortens_the_life_of_what_it_creates_and_of_nothing_else() -> None:
    world = World(policy=SLIDING)
    world.run(prompt(2))
    world.run(prompt(5), ttl_seconds=2)
    world.clock.advance(2)
    assert world.cached_blocks(prompt(5)) == 2
    assert world.run(prompt(5), ttl_seconds=9000).cached_blocks == 2
    world.clock.advance(9.5)
    assert world.cached_blocks(prompt(5)) == 5
    world.clock.advance(0.5)
    assert world.cached_blocks(prompt(5)) == 0
    world.check()


def test_a_requests_own_ttl_in_absolute_mode() -> None:
    world = World(policy=ABSOLUTE)
    running, _ = world.start(prompt(3), ttl_seconds=4)
    world.clock.advance(3.5)
    assert world.cached_blocks(prompt(3)) == 3
    world.clock.advance(0.5)
    assert world.cached_blocks(prompt(3)) == 0
    world.manager.release(running)
    world.check()


@pytest.mark.parametrize(
    ("policy", "left_seconds"),
    [
        (NamespacePolicy(ttl_seconds=4), 0),
        (NamespacePolicy(ttl_seconds=20), 15),
        (NamespacePolicy(ttl_seconds=8, ttl_mode="absolute"), 3),
        (NamespacePolicy(ttl_seconds=20, max_age_seconds=7), 2),
    ],
)
def test_a_new_policy_holds_for_blocks_already_there(policy: NamespacePolicy, left_seconds: float) -> None:
    world = World(policy=SLIDING)
    world.run(prompt(3), ttl_seconds=50)
    world.clock.advance(5)
    world.namespace("acme", policy)
    if left_seconds:
        world.clock.advance(left_seconds - 0.5)
        assert world.cached_blocks(prompt(3)) == 3
        world.clock.advance(0.5)
    assert world.cached_blocks(prompt(3)) == 0
    assert world.manager.stats("acme").resident_bytes == 0, "reclaimed, not only hidden"
    world.check()


def test_a_capped_run_outlives_a_change_of_mode_correctly() -> None:
    world = World(policy=SLIDING)
    running, _ = world.start(prompt(2), ttl_seconds=6)
    world.clock.advance(5)
    world.namespace("acme", ABSOLUTE)
    world.clock.advance(1)
    assert world.cached_blocks(prompt(2)) == 0
    world.manager.release(running)
    world.check()


def test_expired_blocks_are_reclaimed_by_a_tick_without_any_request() -> None:
    world = World(policy=SLIDING)
    for seed in range(5):
        world.run(prompt(3, seed=seed))
    world.clock.advance(10)
    world.manager.tick()
    stats = world.manager.stats("acme")
    assert (stats.resident_bytes, stats.counters.expired_blocks) == (0, 15)


def test_one_call_reclaims_a_bounded_number_of_runs_and_the_rest_does_not_match() -> None:
    world = World(policy=SLIDING, limits=CacheLimits(reclaimed_runs=2))
    for seed in range(5):
        world.run(prompt(3, seed=seed))
    world.clock.advance(10)
    world.manager.tick()
    assert world.manager.stats("acme").counters.expired_blocks == 12  # two by the tick, two by asking
    assert world.cached_blocks(prompt(3, seed=4)) == 0
    world.check()


def test_expired_pages_are_zeroed_when_asked_for() -> None:
    for zero in (True, False):
        world = World(policy=SLIDING, limits=CacheLimits(zero_expired=zero))
        world.run(prompt(3))
        world.clock.advance(10)
        world.manager.tick()
        assert len(world.manager.take_operations()) == zero


def test_room_is_made_of_expired_blocks_before_living_ones() -> None:
    world = World(pages=8, policy=SLIDING)
    world.namespace("bolt", NamespacePolicy(ttl_seconds=100))
    world.run(prompt(3), "bolt")
    world.clock.advance(1)
    world.run(prompt(4))
    world.clock.advance(10)
    world.run(prompt(4, seed=1))
    assert world.cached_blocks(prompt(3), "bolt") == 3


def ticks(world: World, count: int) -> None:
    for _ in range(count):
        world.manager.tick()


def test_a_clock_that_goes_back_or_stands_still_is_refused() -> None:
    world = World(limits=CacheLimits(still_readings=1000))
    world.clock.seconds -= 1
    with pytest.raises(ClockWentBack, match=r"from 1000.0 to 999.0"):
        world.manager.tick()
    world.clock.seconds += 1
    ticks(world, 990)
    with pytest.raises(ClockStandsStill):
        ticks(world, 20)
    world.clock.advance(1)
    world.manager.tick()
    for nonsense in (float("nan"), float("inf")):
        world.clock.seconds = nonsense
        with pytest.raises(ClockStandsStill):
            world.manager.tick()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttl_seconds", 0),
        ("ttl_seconds", -1),
        ("ttl_seconds", 604_801),
        ("ttl_seconds", float("nan")),
        ("ttl_seconds", "300"),
        ("ttl_seconds", True),
        ("max_age_seconds", 0),
        ("ttl_mode", "forever"),
        ("offload", "cloud"),
        ("reserved_share", -0.1),
        ("reserved_share", 1.1),
        ("limit_share", float("inf")),
        ("pin_share", None),
        ("weight", 0),
        ("weight", float("inf")),
    ],
)
def test_a_policy_nobody_can_mean_names_its_field(field: str, value: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        NamespacePolicy.from_effective({field: value})
    assert refused.value.field == field


def test_a_reservation_above_the_limit_is_refused() -> None:
    with pytest.raises(InvalidValue, match="reserved_share"):
        NamespacePolicy(reserved_share=0.5, limit_share=0.4)


def test_a_policy_reads_what_a_snapshot_says_and_leaves_the_rest() -> None:
    policy = NamespacePolicy.from_effective({"ttl_seconds": 60, "request_kv_dtypes": ["int4", "int8"], "models": {}})
    assert (policy.ttl_seconds, policy.request_kv_dtypes, policy.weight) == (60, ("int4", "int8"), 1.0)
    assert NamespacePolicy.from_effective({"max_age_seconds": None}).age_seconds() == float("inf")
    assert NamespacePolicy() == NamespacePolicy.from_effective({}), "the built-ins are the product's"


def test_the_built_ins_are_those_the_control_plane_publishes() -> None:
    theirs = PolicyFields().model_dump()
    assert NamespacePolicy.from_effective(theirs) == NamespacePolicy()
