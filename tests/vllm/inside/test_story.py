"""Whatever comes, the books are sound after each step, the workers' tables only grow, and no answer is lost."""

import random
from contextlib import suppress

import pytest

from engine_agent.cache.errors import PinOverBudget
from tests.vllm.inside.scheduling import World, prompt

NAMES = ("acme", "bolt", "coil")


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in-step", "ahead"])
@pytest.mark.parametrize("seed", range(12))
def test_any_story_ends_well(seed: int, runs_ahead: bool) -> None:
    chance = random.Random(seed)
    policies = {name: policy_of(chance) for name in NAMES}
    world = World(policies, blocks=40, budget=chance.choice([48, 512]), seats=6, runs_ahead=runs_ahead)
    alive = []
    for step in range(250):
        if chance.random() < 0.4:
            tokens = [*prompt(chance.randint(0, 5), extra=0), *prompt(chance.randint(0, 3), seed=chance.randint(1, 5))]
            most, ttl = chance.choice([1, 8, 60]), chance.choice([None, None, 7])
            alive.append(world.request(tokens, chance.choice(NAMES), max_tokens=most, ttl_seconds=ttl))
        world.step()
        alive = [request for request in alive if not request.is_finished()]
        if alive and chance.random() < 0.05:
            world.abort(alive.pop(chance.randrange(len(alive))))
        if chance.random() < 0.05:
            name = chance.choice(NAMES)
            world.set_policy(name, policy_of(chance))
            if chance.random() < 0.3:
                world.purge(name)
        if chance.random() < 0.03:
            name = chance.choice(NAMES)
            pinned = prompt(chance.randint(1, 4))
            if (
                world.governor.tenants.tenant(name).policy.pin_share
                and world.governor.tenants.tenant(name).policy.prefix_caching
            ):
                with suppress(PinOverBudget):
                    world.manager.pin(f"pin {step}", name, pinned[:17], kv_format="fp8_e4m3", model_revision="r")
        world.clock.now += chance.choice([0, 0.25, 1, 4])
        world.check()
    world.until_idle(steps=20_000)
    assert all(request.is_finished() for request in alive)
    assert not world.manager.pool().sequences


def policy_of(chance: random.Random) -> dict[str, object]:
    return {
        "ttl_seconds": chance.choice([2, 6, 1000]),
        "ttl_mode": chance.choice(["sliding", "absolute"]),
        "limit_share": chance.choice([1, 1, 0.6]),
        "weight": chance.choice([1, 2]),
        "pin_share": chance.choice([0, 0.1]),
        "prefix_caching": chance.random() < 0.9,
    }
