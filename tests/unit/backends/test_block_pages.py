"""Who follows the pages knows which blocks there are, through gaps, restarts and snapshots of many pages."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from engine_agent.backends.block_pages import FROZEN_SECONDS, BlockPages, Found, Question, answered
from engine_agent.cache.books import CacheLimits
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.sequences import Sequence
from engine_agent.contracts.block_events import MARK_BYTES, Load, Page, change_bytes, events_decode, events_encode
from tests.unit.cache.clocks import HandClock
from tests.unit.cache.making import World, key_of, prompt

LOAD = Load(1, 2, 3, 4, 5, 0.0)
Held = set[tuple[str, bytes, bytes]]  # namespace, root, mark


@dataclass
class Follower:
    """A gateway: it knows what pages say, and asks with the number of the last."""

    boot: str = ""
    number: int = 0
    held: Held = field(default_factory=set)
    snapshots: int = 0

    def take(self, told: Page) -> None:
        page = events_decode(events_encode(told))  # as it comes over the wire
        if page.is_snapshot:
            self.held, self.snapshots = set(), self.snapshots + 1
        self.boot, self.number = page.boot, page.number
        for change in page.changes:
            marks = {change.marks[at : at + MARK_BYTES] for at in range(0, len(change.marks), MARK_BYTES)}
            entries = {(change.namespace, change.root, mark) for mark in marks}
            if change.kind == "stored":
                self.held |= entries
            elif change.kind == "removed":
                assert entries <= self.held
                self.held -= entries
            else:
                self.held = {one for one in self.held if one[1] != change.root}

    async def catch_up(self, pages: BlockPages) -> None:
        while True:
            page = await pages.page(self.boot, self.number)
            self.take(page)
            if page.is_whole:
                return


def pages_of(world: World, *, clock: Callable[[], float] | None = None, page_bytes: int = 4_096) -> BlockPages:
    async def ask(question: Question | None) -> tuple[Found, Load]:
        return answered(world.manager.events, question) if question else None, LOAD

    return BlockPages(ask, hidden="hidden", page_bytes=page_bytes, clock=clock or HandClock())


def index_of(world: World) -> Held:
    return {
        (name, tree.root[:MARK_BYTES], digest[:MARK_BYTES])
        for name, namespace in world.manager.cache.books.namespaces.items()
        for tree in namespace.trees.values()
        for run in tree.runs()
        if not run.is_hollow and name != "hidden"
        for digest in run.digests
    }


@pytest.mark.parametrize("every", [1, 17])
@pytest.mark.parametrize("kept", [100_000, 40])
@pytest.mark.parametrize("page_bytes", [1, 200, 100_000])
async def test_a_follower_holds_exactly_what_is_in_any_tier(every: int, kept: int, page_bytes: int) -> None:
    policy = NamespacePolicy(ttl_seconds=20, offload="host", pin_share=0.2)
    world = World(pages=30, host_pages=20, policy=policy, limits=CacheLimits(event_blocks=kept))
    world.namespace("bolt", NamespacePolicy(ttl_seconds=20, ttl_mode="absolute", limit_share=0.5))
    world.namespace("hidden", NamespacePolicy())
    pages, follower, chance = pages_of(world, page_bytes=page_bytes, clock=world.clock), Follower(), random.Random(1)
    running: list[Sequence] = []
    for step in range(300):
        name = chance.choice(["acme", "bolt", "hidden"])
        world.random_step(step, chance, running, name)
        if step % every == 0:
            await follower.catch_up(pages)
            assert follower.held == index_of(world)
    assert (follower.snapshots > 1) == (kept == 40 and every == 17)


async def test_nothing_is_lost_between_the_pages_of_a_snapshot() -> None:
    world = World(pages=400)
    for seed in range(20):
        world.run(prompt(6, seed=seed))
    pages, follower = pages_of(world, page_bytes=300), Follower()
    first = await pages.page("", 0)
    assert (first.is_snapshot, first.is_whole) == (True, False)
    follower.take(first)
    world.run(prompt(6, seed=77))  # it comes, and others go, while the snapshot is told
    epoch = world.manager.cache.namespace("acme").epoch + 1
    world.manager.purge("acme", key=key_of("acme", epoch), epoch=epoch)
    world.run(prompt(3, seed=78))
    await follower.catch_up(pages)
    await follower.catch_up(pages)
    assert follower.snapshots == 1
    assert follower.held == index_of(world)
    assert len(follower.held) == 3


async def test_every_page_is_within_its_size_and_a_longer_change_has_one_of_its_own() -> None:
    world = World(pages=400)
    for seed in range(20):
        world.run(prompt(seed + 1, seed=seed))
    for boot, since in (("", 0), ("boot-1", 0)):
        pages, sizes = pages_of(world, page_bytes=150), []
        while True:
            page = await pages.page(boot, since)
            boot, since = page.boot, page.number
            sizes.append((sum(map(change_bytes, page.changes)), len(page.changes)))
            if page.is_whole:
                break
        assert all(size <= 150 or changes == 1 for size, changes in sizes)
        assert sum(changes for _, changes in sizes) == 20


async def test_one_snapshot_serves_everybody_who_needs_one() -> None:
    world, clock, asked = World(pages=400), HandClock(), []
    world.run(prompt(6))

    async def ask(question: Question | None) -> tuple[Found, Load]:
        found = answered(world.manager.events, question) if question else None
        asked.append(found)
        return found, LOAD

    pages = BlockPages(ask, hidden="hidden", clock=clock)
    await Follower().catch_up(pages)
    world.run(prompt(6, seed=1))
    second = Follower()
    await second.catch_up(pages)
    assert asked[1] is None  # nobody went through the index again
    await second.catch_up(pages)
    assert second.held == index_of(world)
    clock.advance(FROZEN_SECONDS + 1)
    await Follower().catch_up(pages)
    assert asked[-1] is not None  # it was forgotten, and made anew


async def test_a_place_in_a_snapshot_that_is_gone_is_a_gap() -> None:
    world, clock = World(pages=400), HandClock()
    for seed in range(20):
        world.run(prompt(6, seed=seed))
    pages, follower = pages_of(world, page_bytes=300, clock=clock), Follower()
    follower.take(await pages.page("", 0))
    clock.advance(FROZEN_SECONDS + 1)
    await follower.catch_up(pages)
    assert follower.snapshots == 2
    assert follower.held == index_of(world)


@pytest.mark.parametrize(("boot", "since"), [("boot-0", 1), ("", 0), ("boot-1", 2**61), ("boot-1", 2**63 - 1)])
async def test_who_knows_another_boot_or_a_future_is_told_all(boot: str, since: int) -> None:
    world = World()
    world.run(prompt(3))
    page = await pages_of(world).page(boot, since)
    assert (page.is_snapshot, page.is_whole, page.boot, page.number) == (True, True, "boot-1", 1)
    assert sum(len(change.marks) for change in page.changes) == 3 * MARK_BYTES


async def test_an_empty_index_is_told_as_one() -> None:
    page = await pages_of(World()).page("", 0)
    assert (page.is_snapshot, page.is_whole, page.changes) == (True, True, ())


async def test_moves_between_tiers_are_told_as_nothing() -> None:
    world = World(pages=8, host_pages=8, policy=NamespacePolicy(ttl_seconds=900, offload="host"))
    for _ in range(2):
        world.run(prompt(4))  # hit once, so worth a place below
    pages, follower = pages_of(world), Follower()
    await follower.catch_up(pages)
    world.run([*prompt(7, seed=1)])
    assert world.manager.stats("acme").counters.demoted_blocks > 0
    page = await pages.page(follower.boot, follower.number)
    assert [change.kind for change in page.changes] == ["stored"]
    follower.take(page)
    assert follower.held == index_of(world)
    assert len(follower.held) == 11
