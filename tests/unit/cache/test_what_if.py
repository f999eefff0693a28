"""What another TTL or limit would have done, foretold from one run and tried in another."""

import random

import pytest

from engine_agent.cache.policy import NamespacePolicy
from tests.unit.cache.making import World, prompt

PAGES = 600


def traffic(world: World, *, requests: int = 1500) -> float:
    """Prompts of different lengths that come back after a while, and share one beginning. The hit ratio they had."""
    chance = random.Random(5)
    lengths = {number: chance.randint(2, 12) for number in range(1, 60)}
    for _ in range(requests):
        number = min(int(chance.expovariate(0.08)) + 1, 59)
        sequence, _ = world.start([*prompt(2, extra=0), *prompt(lengths[number], seed=number, extra=1)])
        world.manager.release(sequence)
        world.clock.advance(chance.choice([0.25, 0.5, 1]))
    ratio = world.manager.stats("acme").hit_ratio
    assert ratio is not None
    return ratio


@pytest.mark.parametrize("ttl_seconds", [3, 10, 40, 200])
def test_the_hit_rate_under_another_ttl_is_foretold(ttl_seconds: int) -> None:
    lived, tried = World(pages=PAGES * 4), World(pages=PAGES * 4, policy=NamespacePolicy(ttl_seconds=ttl_seconds))
    traffic(lived)
    foretold = lived.manager.what_if("acme", ttl_seconds=ttl_seconds)
    assert foretold == pytest.approx(traffic(tried), abs=0.01)


@pytest.mark.parametrize("pages", [60, 150, 300])
def test_the_hit_rate_under_another_limit_is_foretold(pages: int) -> None:
    policy = NamespacePolicy(limit_share=pages / PAGES)
    lived, tried = World(pages=PAGES), World(pages=PAGES, policy=policy)
    traffic(lived)
    foretold = lived.manager.what_if("acme", limit_share=pages / PAGES)
    assert foretold == pytest.approx(traffic(tried), abs=0.02), "a request in flight needs some of it for itself"


def test_nothing_is_foretold_of_a_namespace_that_asked_nothing() -> None:
    assert World().manager.what_if("acme", ttl_seconds=60) is None
