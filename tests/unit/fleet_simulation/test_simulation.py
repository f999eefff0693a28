"""The simulation itself: that what it simulates happens, that a seed is a run, and that it catches what is broken."""

from collections import Counter

import pytest

from tests.fleet_simulation.broken import BROKEN
from tests.fleet_simulation.seeds import PARTS, SEEDS, seed_problem, seeds_of_part
from tests.fleet_simulation.world import Parts, Run

LOOKED_AT = range(60)
MOST_TRIED = 2_000  # seeds until a broken part is caught
# Where it takes more than a few: the first of them that catches it, which is tried before all others.
CAUGHT_BY = {
    "TakesOlderSnapshots": 30,
    "BringsBackOlder": 23,
    "CountsNothingUp": 19,
    "ComparesNumbersOnly": 27,
    "AcknowledgesUnstored": 76,
}


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    made = [Run(seed, Parts()) for seed in LOOKED_AT]
    for run in made:
        run.run()
    return made


def test_every_kind_of_trouble_strikes(runs: list[Run]) -> None:
    struck = sum((run.weather.struck for run in runs), Counter[str]())
    kinds = {"loss", "duplication", "crashes", "engine_crashes", "wiped_broker", "stalls", "corruption", "power_cuts"}
    assert kinds <= {kind for kind, times in struck.items() if times >= 5}


def test_messages_overtake_each_other_and_plans_overlap(runs: list[Run]) -> None:
    assert sum(run.broker.overtakings for run in runs) > 10
    assert sum(run.control_plane.overlaps for run in runs) > 10


def test_states_purges_and_operations_all_come_through(runs: list[Run]) -> None:
    steps = [step for run in runs for step in run.control_plane.steps]
    assert {step.deed for step in steps} == {"state", "drain", "resume", "integrity"}
    assert all(step.ended is not None and step.ended.is_done for step in steps if step.deed == "state")
    assert sum(step.ended.blocks for step in steps if step.ended is not None) > 100


def test_a_seed_is_the_same_run_each_time() -> None:
    assert story(7) == story(7)
    assert story(7) != story(8)


def story(seed: int) -> list[str]:
    told: list[str] = []
    Run(seed, Parts(), tell=told.append).run()
    assert len(told) > 50
    return told[1:]  # the first names objects


def test_every_seed_is_in_one_part() -> None:
    all_of = [seed for part in range(1, PARTS + 1) for seed in seeds_of_part(part)]
    assert sorted(all_of) == list(range(SEEDS))


def test_a_broken_part_is_caught(subtests: pytest.Subtests) -> None:
    for name in BROKEN:
        with subtests.test(msg=name):
            seeds = (CAUGHT_BY.get(name, 0), *range(MOST_TRIED))
    assert any(seed_problem(seed, BROKEN[name]) for seed in seeds)
