import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.cadence import cadence_seconds, stale_after_seconds


@pytest.mark.parametrize(
    ("agents", "seconds"), [(0, 0.5), (1, 0.5), (20, 0.5), (510, 2.75), (1_000, 5.0), (1_001, 5.0), (100_000, 5.0)]
)
def test_few_agents_beat_twice_a_second_and_many_every_five_seconds(agents: int, seconds: float) -> None:
    assert cadence_seconds(agents) == seconds


@given(st.integers(0, 5_000))
def test_one_agent_more_never_makes_the_others_faster(agents: int) -> None:
    assert cadence_seconds(agents) <= cadence_seconds(agents + 1)


@given(st.integers(0, 5_000))
def test_one_lost_heartbeat_makes_nobody_stale_and_a_dead_agent_is_named_within_ten_seconds(agents: int) -> None:
    cadence = cadence_seconds(agents)
    assert cadence < stale_after_seconds(cadence) <= 10


def test_a_small_fleet_waits_three_seconds() -> None:
    assert stale_after_seconds(0.5) == 3.0
    assert stale_after_seconds(5.0) == 8.0
