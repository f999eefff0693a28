"""The timing statistic: it finds what is there, and does not find what is not."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.canary.statistic import auc_of, interval_of

times = st.lists(st.integers(0, 40).map(float), min_size=1, max_size=40)


@given(times, times)
def test_it_is_how_often_the_first_is_smaller_and_ties_count_half(first: list[float], second: list[float]) -> None:
    wins = sum((a < b) + (a == b) / 2 for a in first for b in second)
    assert auc_of(first, second) == pytest.approx(wins / (len(first) * len(second)))


@given(times, times)
def test_the_interval_holds_what_was_found_and_lies_between_0_and_1(first: list[float], second: list[float]) -> None:
    found = interval_of(first, second)
    assert 0 <= found.low <= found.auc <= found.high <= 1


@given(times, times)
def test_the_other_way_about_it_is_the_mirror_image(first: list[float], second: list[float]) -> None:
    one, other = interval_of(first, second), interval_of(second, first)
    assert (one.auc, one.low, one.high) == pytest.approx((1 - other.auc, 1 - other.high, 1 - other.low), abs=1e-9)


@given(times, times)
def test_only_the_order_of_times_counts(first: list[float], second: list[float]) -> None:
    stretched = [[math.exp(one / 8) for one in some] for some in (first, second)]
    assert interval_of(first, second) == interval_of(*stretched)


@given(times, times)
def test_who_wants_to_be_surer_gets_a_wider_interval(first: list[float], second: list[float]) -> None:
    assert interval_of(first, second, z=3).width >= interval_of(first, second, z=1).width


def test_classes_that_never_overlap_still_have_an_interval_of_some_width() -> None:
    found = interval_of([1.0] * 300, [2.0] * 300)
    assert (found.auc, found.high) == (1.0, 1.0)
    assert 0.95 < found.low < 1.0


def test_of_one_class_there_is_nothing_to_say() -> None:
    with pytest.raises(ValueError, match="both classes"):
        auc_of([], [1.0])


def test_three_hundred_pairs_give_an_interval_no_wider_than_a_tenth() -> None:
    chance = random.Random(1)
    first, second = ([chance.gauss(0, 1) for _ in range(300)] for _ in range(2))
    assert interval_of(first, second).width <= 0.1


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.5])
def test_nineteen_intervals_of_twenty_hold_the_truth(apart: float) -> None:
    chance = random.Random(7)
    truth = (1 + math.erf(apart / 2)) / 2  # of two normal distributions so far apart
    held = 0
    for _ in range(400):
        first = [chance.gauss(0, 1) for _ in range(60)]
        second = [chance.gauss(apart, 1) for _ in range(60)]
        found = interval_of(first, second)
        held += found.low <= truth <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_an_advantage_is_proven_only_by_an_interval_beyond_a_half() -> None:
    chance = random.Random(3)
    same = interval_of(*([chance.gauss(0, 1) for _ in range(200)] for _ in range(2)))
    assert same.holds_nothing
    assert same.advantage == 0
    first, slower = [chance.gauss(0, 1) for _ in range(200)], [chance.gauss(2, 1) for _ in range(200)]
    for found in (interval_of(first, slower), interval_of(slower, first)):
        assert not found.holds_nothing
        assert found.advantage > 0.3
