from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.sign_in_limits import (
    ADDRESS_LIMIT,
    DEVICE_LIMIT,
    EMAIL_AND_ADDRESS_LIMIT,
    WINDOW,
    RecentAttempts,
    seconds_to_wait,
    seconds_to_wait_known,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def ago(seconds: float, times: int = 1) -> list[datetime]:
    return [NOW - timedelta(seconds=seconds)] * times


def recent(
    *,
    same_email_and_address: Sequence[datetime] = (),
    same_email_and_neighbourhood: Sequence[datetime] = (),
    same_email: Sequence[datetime] = (),
    same_address: Sequence[datetime] = (),
) -> RecentAttempts:
    return RecentAttempts(
        same_email_and_address=same_email_and_address,
        same_email_and_neighbourhood=same_email_and_neighbourhood,
        same_email=same_email,
        same_address=same_address,
    )


def test_first_attempts_need_not_wait() -> None:
    assert seconds_to_wait(recent(), now=NOW) == 0
    assert seconds_to_wait(recent(same_email_and_address=ago(1, EMAIL_AND_ADDRESS_LIMIT - 1)), now=NOW) == 0
    assert seconds_to_wait(recent(same_address=ago(1, ADDRESS_LIMIT - 1)), now=NOW) == 0


@pytest.mark.parametrize(
    "attempts",
    [
        recent(same_email_and_address=ago(60, EMAIL_AND_ADDRESS_LIMIT)),
        recent(same_address=ago(60, ADDRESS_LIMIT)),
        recent(same_email=ago(60, 30), same_email_and_address=ago(60, 2)),
        recent(same_email=ago(60, 100), same_email_and_neighbourhood=ago(60, 1)),
    ],
)
def test_each_limit_waits_until_its_window_ends(attempts: RecentAttempts) -> None:
    assert seconds_to_wait(attempts, now=NOW) == WINDOW.total_seconds() - 60


def test_network_without_failures_may_always_try() -> None:
    for failures in (0, 29, 30, 99, 100, 100_000):
        assert seconds_to_wait(recent(same_email=ago(1, failures)), now=NOW) == 0


def test_pressure_narrows_what_a_network_gets() -> None:
    tries = {
        failures: next(
            count
            for count in range(10)
            if seconds_to_wait(recent(same_email=ago(1, failures), same_email_and_address=ago(1, count)), now=NOW)
        )
        for failures in (29, 30, 99)
    }
    assert tries == {29: 5, 30: 2, 99: 2}
    neighbour = recent(same_email=ago(1, 99), same_email_and_neighbourhood=ago(1, 50))
    assert seconds_to_wait(neighbour, now=NOW) == 0, "neighbours count only under the heaviest attack"


def test_known_browser_has_only_its_own_failures() -> None:
    assert seconds_to_wait_known(ago(1, DEVICE_LIMIT - 1), now=NOW) == 0
    assert seconds_to_wait_known(ago(60, DEVICE_LIMIT), now=NOW) == WINDOW.total_seconds() - 60


def test_the_wait_ends_when_enough_old_attempts_have_left_the_window() -> None:
    attempts = [*ago(800), *ago(700), *ago(1, EMAIL_AND_ADDRESS_LIMIT - 1)]
    assert seconds_to_wait(recent(same_email_and_address=attempts), now=NOW) == 200


def test_a_wait_is_at_least_a_second() -> None:
    attempts = ago(WINDOW.total_seconds(), EMAIL_AND_ADDRESS_LIMIT)
    assert seconds_to_wait(recent(same_email_and_address=attempts), now=NOW) == 1


@given(st.lists(st.integers(0, int(WINDOW.total_seconds()) - 1), max_size=120))
def test_after_the_wait_another_attempt_is_allowed(ages: list[int]) -> None:
    times = sorted(NOW - timedelta(seconds=age) for age in ages)
    later = NOW + timedelta(seconds=seconds_to_wait(RecentAttempts(times, times, times, times), now=NOW))
    still = [at for at in times if at > later - WINDOW]
    assert seconds_to_wait(RecentAttempts(still, still, still, still), now=later) == 0
