"""A consumer that follows the events, and takes a snapshot where it missed some, holds exactly the index."""

import random

import pytest

from engine_agent.cache.books import CacheLimits
from engine_agent.cache.events import Event, Gap, IndexSnapshot, Replay
from engine_agent.cache.keys import Digest
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.sequences import Sequence
from tests.unit.cache.making import World, prompt

Held = set[tuple[Digest, Digest, str]]  # root, digest, tier


class Follower:
    """Knows nothing but events and snapshots."""

    def __init__(self) -> None:
        self.held: Held = set()
        self.parents: dict[Digest, Digest] = {}
        self.number = 0
        self.snapshots = 0

    def follow(self, world: World) -> None:
        answer = world.manager.events.since(self.number, boot="boot-1")
        if isinstance(answer, Gap):
            self.load(world.manager.events.snapshot())
            return
        for event in answer.events:
            assert event.number == self.number + 1
            self.apply(event)
            self.number = event.number

    def load(self, snapshot: IndexSnapshot) -> None:
        self.snapshots += 1
        self.number = snapshot.number
        self.held = {
            (one.root, digest, tier) for one in snapshot.stored for digest in one.digests for tier in one.tiers
        }

    def apply(self, event: Event) -> None:
        entries = {(event.root, digest, event.tier) for digest in event.digests}
        parent = event.parent
        for digest in event.digests:
            assert self.parents.setdefault(digest, parent) == parent
            parent = digest
        if event.kind in ("stored", "loaded"):
            assert not self.held & entries
            self.held |= entries
        elif event.kind == "demoted":
            self.held -= {(event.root, digest, "device") for digest in event.digests}
            self.held |= entries
        elif event.kind == "removed":
            assert self.held >= entries
            self.held -= entries
            elsewhere = {digest for _, digest, _ in self.held if digest in set(event.digests)}
            assert event.is_gone == (not elsewhere)
        else:
            self.held = {one for one in self.held if one[0] != event.root}


def index_of(world: World) -> Held:
    return {
        (tree.root, digest, ("device", "host")[level])
        for namespace in world.manager.cache.books.namespaces.values()
        for tree in namespace.trees.values()
        for run in tree.runs()
        for level, copy in enumerate(run.copies)
        if copy
        for digest in run.digests
    }


@pytest.mark.parametrize(("kept", "every"), [(100_000, 1), (100_000, 17), (40, 13)])
@pytest.mark.parametrize("seed", range(3))
def test_a_follower_holds_exactly_the_index(kept: int, every: int, seed: int) -> None:
    policy = NamespacePolicy(ttl_seconds=20, offload="host", pin_share=0.2)
    world = World(pages=30, host_pages=20, policy=policy, limits=CacheLimits(event_blocks=kept))
    world.namespace("bolt", NamespacePolicy(ttl_seconds=20, ttl_mode="absolute", limit_share=0.5))
    chance, follower, running = random.Random(seed), Follower(), list[Sequence]()
    for step in range(400):
        name = chance.choice(["acme", "bolt"])
        world.random_step(step, chance, running, name)
        if step % every == 0:
            follower.follow(world)
            assert follower.held == index_of(world)
    assert (follower.snapshots > 0) == (kept == 40)


def test_events_say_where_in_a_chain_they_are() -> None:
    world = World()
    world.run(prompt(3))
    world.run([*prompt(2, extra=0), *prompt(2, seed=1)])
    log = world.manager.events.since(0, boot="boot-1")
    assert isinstance(log, Replay)
    first, second = (event for event in log.events if event.kind == "stored")
    assert (first.parent, len(first.digests)) == (first.root, 3)
    assert (second.parent, len(second.digests)) == (first.digests[1], 2)


def test_another_boot_or_a_number_from_the_future_is_a_gap() -> None:
    world = World()
    world.run(prompt(3))
    log = world.manager.events
    assert log.since(log.number, boot="boot-1") == Replay("boot-1", ())
    for number, boot in ((0, "boot-0"), (log.number + 1, "boot-1"), (-1, "boot-1")):
        assert isinstance(log.since(number, boot=boot), Gap)


def test_a_log_keeps_a_bounded_number_of_digests() -> None:
    world = World(pages=400, limits=CacheLimits(event_blocks=100))
    for seed in range(50):
        world.run(prompt(6, seed=seed))
    gap = world.manager.events.since(0, boot="boot-1")
    assert isinstance(gap, Gap)
    kept = world.manager.events.since(gap.oldest - 1, boot="boot-1")
    assert isinstance(kept, Replay)
    assert sum(len(event.digests) for event in kept.events) <= 100


def test_no_event_carries_a_token() -> None:
    world = World()
    world.run([123_456_789] * 9)
    log = world.manager.events.since(0, boot="boot-1")
    assert "123456789" not in repr(log)
    assert "123456789" not in repr(world.manager.events.snapshot())
