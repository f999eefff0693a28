"""Curves of engines, read between their points: what is foretold lies where it must, and says how far it may be off."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.analytics.foretelling import (
    ESTIMATOR_ERROR,
    LIMIT_ERROR,
    Asked,
    Curves,
    curves_read,
    foretold,
    ttls_of,
)

TTLS = [10, 100, 1000]


def told(prompt_tokens: int = 1000, **changes: Any) -> dict[str, Any]:
    curves = [
        {"ttl_mode": "sliding", "limit_share": 1.0, "hit_ratios": [0.2, 0.4, 0.8], "resident_bytes": [10, 100, 1000]},
        {"ttl_mode": "sliding", "limit_share": 0.5, "hit_ratios": [0.2, 0.3, 0.5], "resident_bytes": [10, 80, 500]},
        {"ttl_mode": "absolute", "limit_share": 1.0, "hit_ratios": [0.1, 0.3, 0.7], "resident_bytes": [8, 90, 900]},
    ]
    return {"prompt_tokens": prompt_tokens, "ttls": TTLS, "curves": curves} | changes


def read(**changes: Any) -> Curves:
    found = curves_read(told(**changes))
    assert found is not None
    return found


def asked(ttl: float, mode: str = "sliding", share: float = 1.0) -> Asked:
    return Asked(ttl, mode, share)


def test_a_point_of_the_grid_is_told_as_it_is_and_off_by_the_estimate_alone() -> None:
    found = foretold([read()], asked(100))
    assert found is not None
    assert (found.hit_ratio, found.error, found.resident_bytes) == pytest.approx((0.4, ESTIMATOR_ERROR, 100))


def test_between_two_points_it_is_half_way_where_the_ttl_is_by_logarithm_and_may_be_off_to_either() -> None:
    found = foretold([read()], asked(100 * 10**0.5))
    assert found is not None
    assert found.hit_ratio == pytest.approx(0.6)
    assert found.error == pytest.approx(0.2 + ESTIMATOR_ERROR)
    assert found.resident_bytes == 550


def test_below_the_first_point_there_is_nothing_at_zero_and_beyond_the_last_no_more_is_known() -> None:
    low, high = foretold([read()], asked(1)), foretold([read()], asked(100_000))
    assert low is not None
    assert high is not None
    assert (low.hit_ratio, low.error) == pytest.approx((0.02, 0.18 + ESTIMATOR_ERROR))
    assert (high.hit_ratio, high.resident_bytes) == (0.8, 1000)


def test_a_limit_between_two_lies_between_their_lines() -> None:
    found = foretold([read()], asked(1000, share=0.75))
    assert found is not None
    assert (found.hit_ratio, found.resident_bytes) == pytest.approx((0.65, 750))
    assert found.error == pytest.approx(0.15 + LIMIT_ERROR)


def test_below_the_least_limit_nothing_is_held_at_zero() -> None:
    found = foretold([read()], asked(1000, share=0.0))
    assert found is not None
    assert (found.hit_ratio, found.resident_bytes) == (0.0, 0)


def test_an_absolute_ttl_is_of_its_own_curve_and_a_limit_takes_from_it_what_it_takes_from_a_sliding_one() -> None:
    alone, limited = foretold([read()], asked(1000, "absolute")), foretold([read()], asked(1000, "absolute", 0.5))
    assert alone is not None
    assert limited is not None
    assert alone.hit_ratio == 0.7
    assert limited.hit_ratio == pytest.approx(0.7 * 0.5 / 0.8)
    assert limited.error == pytest.approx(max(0.5 - 0.4375, 0.4375 - 0.4) + LIMIT_ERROR)
    assert limited.resident_bytes == 500


def test_an_engine_that_tells_no_absolute_curve_leaves_it_open_down_to_nothing() -> None:
    sliding = [one for one in told()["curves"] if one["ttl_mode"] == "sliding"]
    found = foretold([read(curves=sliding)], asked(1000, "absolute"))
    assert found is not None
    assert (found.hit_ratio, found.error) == pytest.approx((0.8, 0.8 + ESTIMATOR_ERROR))


def test_engines_are_weighted_by_their_traffic_and_their_memory_adds_up() -> None:
    other = read(
        prompt_tokens=3000,
        curves=[{"ttl_mode": "sliding", "limit_share": None, "hit_ratios": [0, 0, 0], "resident_bytes": [1, 1, 1]}],
    )
    found = foretold([read(), other], asked(1000))
    assert found is not None
    assert (found.hit_ratio, found.resident_bytes) == pytest.approx((0.2, 1001))


def test_of_no_traffic_and_of_no_whole_curve_nothing_is_foretold() -> None:
    assert foretold([], asked(100)) is None
    assert foretold([read(prompt_tokens=0)], asked(100)) is None
    assert curves_read(told(ttls=[], curves=[])) is None
    assert curves_read(told(curves=told()["curves"][1:])) is None


def test_ttls_in_any_order_are_put_into_order() -> None:
    curve = {"ttl_mode": "sliding", "limit_share": 1.0, "hit_ratios": [0.8, 0.2], "resident_bytes": [9, 1]}
    one = read(ttls=[1000, 10], curves=[curve])
    found = foretold([one], asked(10))
    assert found is not None
    assert (found.hit_ratio, ttls_of([one, read()])) == (0.2, [10, 100, 1000])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=3),
    st.floats(1, 1e6),
    st.floats(0, 1),
    st.sampled_from(["sliding", "absolute"]),
)
def test_whatever_engines_tell_a_ratio_is_a_ratio_and_grows_with_the_limit(
    lines: list[tuple[float, float, float]], ttl: float, share: float, mode: str
) -> None:
    shapes = zip([("sliding", 1.0), ("sliding", 0.5), ("absolute", 1.0)], lines, strict=True)
    curves = [
        {"ttl_mode": kind, "limit_share": limit, "hit_ratios": list(line), "resident_bytes": [1, 2, 3]}
        for (kind, limit), line in shapes
    ]
    found = foretold([read(curves=curves)], asked(ttl, mode, share))
    assert found is not None
    assert -1e-9 <= found.hit_ratio <= 1 + 1e-9
    assert found.error >= ESTIMATOR_ERROR
