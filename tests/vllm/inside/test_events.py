"""vLLM's own KV events are not used, because its blocks are ours to give (docs/decisions/0011-vllm.md). Whoever follows
the events that are told instead knows at every moment what the manager in vLLM's scheduler holds.
"""

import asyncio
import random
from collections.abc import Mapping

import pytest
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from engine_agent.backends.block_pages import BlockPages, Found, Question, marks
from engine_agent.backends.vllm.asked import Asked
from engine_agent.backends.vllm.telling import found_unpacked, load_unpacked, question_packed
from engine_agent.cache.books import DEVICE
from engine_agent.contracts.block_events import MARK_BYTES, Load, Page, events_decode, events_encode
from engine_agent.gateway.knowing.index import Index
from tests.vllm.inside.scheduling import BLOCK, World, prompt
from tests.vllm.inside.test_story import NAMES, policy_of

AGENT = "agent-1"
HIDDEN = "nobody"


class Follower:
    """A gateway's index, told as gateways are: through vLLM's messages and an engine's pages, in bytes."""

    def __init__(self, world: World, *, page_bytes: int) -> None:
        self._world, self.index = world, Index()
        self._pages = BlockPages(self._ask, hidden=HIDDEN, page_bytes=page_bytes)
        self._boot, self._number = "", 0
        self.snapshots = self.changes = 0

    def follow(self) -> None:
        """Until it knows all there is."""
        while not self._take(asyncio.run(self._pages.page(self._boot, self._number))):
            pass

    def _take(self, told: Page) -> bool:
        page = events_decode(events_encode(told))
        self.index.apply(AGENT, page)
        self._boot, self._number = page.boot, page.number
        self.snapshots += page.is_snapshot
        self.changes += len(page.changes)
        return page.is_whole

    async def _ask(self, question: Question | None) -> tuple[Found, Load]:
        said = self._world.core.ask("look", question_packed(question))["ok"]
        found, load = MsgpackDecoder().decode(MsgpackEncoder().encode(said))
        return found_unpacked(found), load_unpacked(load)


def held(world: World) -> Mapping[bytes, set[bytes]]:
    """By root, the marks of what can be matched: of the manager's tree itself, and nothing it was ever told of."""
    found: dict[bytes, set[bytes]] = {}
    for namespace in world.manager.cache.books.namespaces.values():
        for tree in namespace.trees.values():
            for run in tree.runs():
                if run.copies[DEVICE] is not None:
                    packed = marks(run.digests)
                    parted = {packed[place : place + MARK_BYTES] for place in range(0, len(packed), MARK_BYTES)}
                    found.setdefault(tree.root[:MARK_BYTES], set()).update(parted)
    return found


def agrees(world: World, follower: Follower) -> None:
    """All it knows is held, all that is held it knows, and it finds of a prompt what the manager finds."""
    known = held(world)
    assert follower.index.blocks.get(AGENT, 0) == sum(map(len, known.values()))
    for root, digests in known.items():
        assert all(follower.index.match(AGENT, root, mark) == 1 for mark in digests)
    for name in NAMES:
        for tokens in (prompt(5), prompt(3, seed=1)):
            sequence = world.governor.sequence(Asked(name), tokens)
            chain = sequence.chain
            matched = follower.index.match(AGENT, chain.root[:MARK_BYTES], marks(chain.digests))
            assert matched * BLOCK == world.cached(tokens, name)


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in-step", "ahead"])
@pytest.mark.parametrize("seed", range(8))
def test_whoever_follows_the_events_knows_what_the_manager_holds(seed: int, runs_ahead: bool) -> None:
    """Whatever comes: requests, aborts, preemptions, expiries, purges, lowered limits, evictions, pins, resets."""
    chance = random.Random(seed)
    world = World({name: policy_of(chance) for name in NAMES}, blocks=40, budget=512, seats=6, runs_ahead=runs_ahead)
    follower = Follower(world, page_bytes=chance.choice([200, 64 << 10]))
    alive = []
    for _ in range(200):
        if chance.random() < 0.4:
            tokens = [*prompt(chance.randint(0, 5), extra=0), *prompt(chance.randint(0, 3), seed=chance.randint(1, 5))]
            ttl = chance.choice([None, None, 7])
            alive.append(
                world.request(tokens, chance.choice(NAMES), max_tokens=chance.choice([1, 40]), ttl_seconds=ttl)
            )
        world.step()
        alive = [request for request in alive if not request.is_finished()]
        if alive and chance.random() < 0.05:
            world.abort(alive.pop(chance.randrange(len(alive))))
        if chance.random() < 0.05:
            name = chance.choice(NAMES)
            world.set_policy(name, policy_of(chance))
            if chance.random() < 0.5:
                world.purge(name)
        if chance.random() < 0.02:
            world.scheduler.reset_prefix_cache()
        world.clock.now += chance.choice([0, 0.25, 1, 4])
        if chance.random() < 0.3:
            follower.follow()
            agrees(world, follower)
    world.until_idle(steps=20_000)
    follower.follow()
    agrees(world, follower)
    assert follower.changes > 50
    assert follower.snapshots == 1, "after the first page it was told changes alone"


def test_whoever_comes_late_or_missed_something_is_told_all_there_is() -> None:
    world = World({name: {} for name in NAMES}, blocks=40)
    for number in range(12):
        world.run(prompt(4, seed=number), NAMES[number % len(NAMES)])
    late = Follower(world, page_bytes=200)
    late.follow()
    agrees(world, late)
    assert late.snapshots == 1
