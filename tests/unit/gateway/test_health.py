"""An engine that fails is left alone for a while, longer each time, and comes back slowly."""

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.health import (
    AWAY_SECONDS,
    EJECTED_SECONDS,
    GOOD_SECONDS,
    IN_A_ROW,
    LEAST_SHARE,
    MOST_EJECTED_SECONDS,
    RETURN_SECONDS,
    Health,
)

NOW = 1_000.0


def ejected(health: Health, now: float) -> None:
    assert [health.failed(now) for _ in range(IN_A_ROW)] == [False] * (IN_A_ROW - 1) + [True]


def test_who_fails_in_a_row_is_ejected_and_a_success_between_saves_it() -> None:
    health = Health()
    for _ in range(IN_A_ROW - 1):
        assert not health.failed(NOW)
    health.succeeded()
    assert not health.failed(NOW)
    assert not health.is_ejected(NOW)
    ejected(Health(), NOW)


def test_who_fails_every_other_time_is_ejected_too() -> None:
    health = Health()
    for _ in range(40):
        health.succeeded()
        if health.failed(NOW):
            return
    raise AssertionError("half of what it got failed")


def test_who_fails_now_and_then_is_not() -> None:
    health = Health()
    for _ in range(100):
        assert not health.failed(NOW)
        for _ in range(4):
            health.succeeded()


def test_it_comes_back_slowly() -> None:
    health = Health()
    ejected(health, NOW)
    back = NOW + EJECTED_SECONDS
    assert health.is_ejected(back - 0.001)
    assert not health.is_ejected(back)
    shares = [health.share(back + RETURN_SECONDS * part / 10) for part in range(12)]
    assert shares[0] == LEAST_SHARE
    assert shares == sorted(shares)
    assert shares[5] == 0.5
    assert shares[10:] == [1.0, 1.0]


def test_it_is_left_alone_longer_each_time_and_forgiven_when_it_was_good_for_long() -> None:
    health, now, spans = Health(), NOW, []
    for _ in range(6):
        ejected(health, now)
        spans.append(health.ejected_until - now)
        now = health.ejected_until
    assert spans == [5.0, 10.0, 20.0, 40.0, 60.0, MOST_EJECTED_SECONDS]
    ejected(health, now + GOOD_SECONDS)
    assert health.ejected_until == now + GOOD_SECONDS + EJECTED_SECONDS


def test_who_was_away_for_a_moment_is_back_at_once_and_who_was_away_for_long_slowly() -> None:
    health = Health()
    health.gone(NOW)
    health.back(NOW + AWAY_SECONDS - 0.1)
    assert health.share(NOW + AWAY_SECONDS) == 1.0
    health.gone(NOW)
    health.gone(NOW + 1)
    health.back(NOW + AWAY_SECONDS)
    assert health.share(NOW + AWAY_SECONDS) == LEAST_SHARE


def test_who_comes_for_the_first_time_gets_all_it_would_get_at_once() -> None:
    """A gateway is up before its engines are: the first prompts of a new fleet find the cache that others filled."""
    health = Health()
    health.gone(NOW)
    health.back(NOW + 10 * AWAY_SECONDS)
    assert health.share(NOW + 10 * AWAY_SECONDS) == 1.0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=200))
def test_whatever_happens_a_share_is_a_share_and_nobody_is_ejected_for_ever(told: list[tuple[bool, float]]) -> None:
    health, now = Health(), NOW
    for is_good, seconds in told:
        now += seconds
        if is_good:
            health.succeeded()
        else:
            health.failed(now)
        assert LEAST_SHARE <= health.share(now) <= 1
        assert health.ejected_until <= now + MOST_EJECTED_SECONDS
    assert health.share(now + MOST_EJECTED_SECONDS + RETURN_SECONDS) == 1
