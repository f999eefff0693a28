"""A quarter of the fleet simulation's seeds. `tests/unit/fleet_simulation` runs the first sixty of all."""

from tests.fleet_simulation.seeds import seeds_of_part, seeds_run


def test_whatever_goes_wrong_the_fleets_promises_hold() -> None:
    failed = seeds_run(seeds_of_part(4))
    assert not failed, f"python -m tests.fleet_simulation --seed {failed[0]}"
