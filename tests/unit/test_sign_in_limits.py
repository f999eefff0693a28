from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tenants.sign_in_limits import (
    ADDRESS_LIMIT,
    EMAIL_AND_ADDRESS_LIMIT,
    EMAIL_LIMIT,
    WINDOW,
    RecentAttempts,
    seconds_to_wait,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def attempts(count: int, *, seconds_ago: float = 60) -> list[datetime]:
    return [NOW - timedelta(seconds=seconds_ago)] * count


def test_a_few_mistakes_cost_nothing() -> None:
    few = attempts(EMAIL_AND_ADDRESS_LIMIT - 1)
    assert seconds_to_wait(RecentAttempts(few, few, few), now=NOW) == 0


def test_one_person_waits_until_the_oldest_attempt_leaves_the_window() -> None:
    many = attempts(EMAIL_AND_ADDRESS_LIMIT, seconds_ago=60)
    assert seconds_to_wait(RecentAttempts(many, many, many), now=NOW) == WINDOW.total_seconds() - 60


def test_one_account_tried_from_many_places_is_held_back() -> None:
    assert seconds_to_wait(RecentAttempts([], attempts(EMAIL_LIMIT), []), now=NOW) > 0
    assert seconds_to_wait(RecentAttempts([], attempts(EMAIL_LIMIT - 1), []), now=NOW) == 0


def test_one_place_trying_many_accounts_is_held_back() -> None:
    assert seconds_to_wait(RecentAttempts([], [], attempts(ADDRESS_LIMIT)), now=NOW) > 0


@given(st.lists(st.integers(0, int(WINDOW.total_seconds()) - 1), max_size=80))
def test_after_the_wait_another_attempt_is_allowed(ages: list[int]) -> None:
    times = sorted(NOW - timedelta(seconds=age) for age in ages)
    recent = RecentAttempts(times, times, times)
    later = NOW + timedelta(seconds=seconds_to_wait(recent, now=NOW))
    still = [at for at in times if at > later - WINDOW]
    assert seconds_to_wait(RecentAttempts(still, still, still), now=later) == 0
