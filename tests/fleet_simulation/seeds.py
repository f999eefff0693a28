"""Many runs, and what to do with one that fails: its number is all that is needed to see it again."""

from collections.abc import Iterable

from controlplane.common.collector import freeze_what_is_loaded
from tests.fleet_simulation.ledger import BrokenPromise
from tests.fleet_simulation.timeline import Circling
from tests.fleet_simulation.world import Parts, Run

SEEDS = 10_000
PARTS = 4  # one for each test module of them


def seeds_of_part(part: int) -> range:
    """Of the parts 1 to PARTS."""
    return range(part - 1, SEEDS, PARTS)


def seed_problem(seed: int, parts: Parts | None = None, *, is_telling: bool = False) -> str | None:
    """What is wrong with this run; None when nothing is."""
    run = Run(seed, parts or Parts(), tell=print if is_telling else None)
    try:
        outcome = run.run()
    except (BrokenPromise, Circling) as broken:
        return str(broken)
    if is_telling:
        print(outcome)
    return None


def seeds_run(seeds: Iterable[int], *, is_telling: bool = False) -> list[int]:
    """The seeds that failed, each said with how to see it again."""
    freeze_what_is_loaded()  # an eighth of the time
    failed = []
    for seed in seeds:
        if problem := seed_problem(seed, is_telling=is_telling):
            failed.append(seed)
            print(f"seed {seed}: {problem}\n    python -m tests.fleet_simulation --seed {seed}")
    return failed
