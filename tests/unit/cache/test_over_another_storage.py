"""The policy is apart from the storage: over another one the same requests get the same answers and lose the same."""

import random
from collections.abc import Iterator

import pytest

from engine_agent.backends.vllm.flat_pages import FlatPages
from engine_agent.cache.manager import Admitted, Deferred
from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.making import PAGE, World, key_of, prompt
from tests.unit.cache.naive_storage import NaiveStorage

PAGES = 40


@pytest.mark.parametrize("seed", range(6))
def test_three_storages_one_policy(seed: int) -> None:
    flat = FlatPages(range(1, PAGES + 1), PAGE, ["fp8"])
    devices = [None, NaiveStorage(PAGES * PAGE, {"fp8": PAGE}), flat]
    told = [list(story(World(pages=PAGES, device=device), random.Random(seed))) for device in devices]
    assert told[0] == told[1] == told[2]
    assert any(isinstance(answer, Admitted) and answer.miss_reason == "evicted" for answer in told[0])
    assert any(isinstance(answer, Deferred) for answer in told[0])


def story(world: World, chance: random.Random) -> Iterator[object]:
    """Everything a policy does: expiry, quota, victims, pins, reasons, purge. What was answered on the way."""
    world.namespace("acme", NamespacePolicy(ttl_seconds=30, limit_share=0.6))
    world.namespace("bolt", NamespacePolicy(ttl_seconds=20, ttl_mode="absolute", reserved_share=0.3, pin_share=0.1))
    world.namespace("coil", NamespacePolicy(weight=2, max_age_seconds=25))
    running = []
    for step in range(400):
        name = chance.choice(["acme", "bolt", "coil"])
        tokens = [*prompt(chance.randint(0, 4), extra=0), *prompt(chance.randint(0, 4), seed=chance.randint(1, 9))]
        sequence = world.sequence(tokens, name, ttl_seconds=chance.choice([None, None, 7]))
        answer = world.manager.admit(sequence)
        yield answer
        if isinstance(answer, Admitted):
            world.manager.fill(sequence, len(tokens))
            running.append(sequence)
        while len(running) > 6 or (running and chance.random() < 0.4):
            world.manager.release(running.pop(chance.randrange(len(running))))
        world.clock.advance(chance.choice([0, 0.25, 1, 4]))
        if step == 100:
            world.manager.pin("p", "bolt", prompt(3), kv_format="fp8", model_revision="m")
        if step == 250:
            yield world.manager.purge("coil", key=key_of("coil", 2), epoch=2)
        yield [world.manager.stats(name).counters for name in ("acme", "bolt", "coil")]
        world.check()
    yield world.manager.pins("bolt")
    yield world.manager.ledger.pairs()
