"""Percentiles of merged counts against sorted lists of the times themselves."""

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.analytics.percentiles import ENOUGH, ERROR, Spread, like_for_like, percentile, saved_seconds
from engine_agent.contracts.usage import FIRST_MS, PROMPT_TOKENS, cached_class, length_class, time_code

times = st.floats(FIRST_MS, 3_600_000)
shares = st.sampled_from([0.01, 0.25, 0.5, 0.95, 0.99, 1.0])


def codes(*found: tuple[float, int, int]) -> Counter[int]:
    """Of time, prompt and cached tokens."""
    return Counter(
        time_code("ttft", prompt_tokens=prompt, cached_tokens=cached, milliseconds=time)
        for time, prompt, cached in found
    )


def exact(found: list[float], share: float) -> float:
    return sorted(found)[max(1, ceil(round(share * len(found), 6))) - 1]


def is_near(value: float | None, truth: float) -> bool:
    return value is not None and abs(value - truth) <= ERROR * truth


@given(st.lists(times, min_size=1, max_size=300), shares)
def test_a_percentile_is_two_percent_off_at_most(found: list[float], share: float) -> None:
    counted = codes(*((one, 100, 0) for one in found))
    assert is_near(percentile(counted, share, metric="ttft"), exact(found, share))


@given(st.lists(st.lists(times, min_size=1, max_size=40), min_size=2, max_size=6), shares)
def test_merged_counts_say_what_all_times_together_would(parts: list[list[float]], share: float) -> None:
    merged = sum((codes(*((one, 100, 0) for one in part)) for part in parts), Counter())
    assert is_near(percentile(merged, share, metric="ttft"), exact([one for part in parts for one in part], share))


@given(st.lists(st.tuples(times, st.integers(1, 100_000), st.floats(0, 1)), min_size=1, max_size=80), shares)
def test_each_class_has_its_own(found: list[tuple[float, int, float]], share: float) -> None:
    rows = [(time, prompt, int(prompt * part)) for time, prompt, part in found]
    spread = Spread(codes(*rows))
    for time, prompt, cached in rows:
        kind, length = cached_class(prompt, cached), length_class(prompt)
        alike = [one for one, *its in rows if (cached_class(*its), length_class(its[0])) == (kind, length)]
        assert time in alike
        assert is_near(spread.percentile(share, metric="ttft", cached=kind, length=length), exact(alike, share))
        assert spread.count("ttft", kind, length) == len(alike)


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile({}, 0.5, metric="ttft") is None
    assert percentile(codes((10.0, 100, 0)), 0.5, metric="duration") is None


def test_times_below_the_scale_are_taken_for_its_first_bucket() -> None:
    found = percentile(codes((0.0, 100, 0)), 0.5, metric="ttft")
    assert found is not None
    assert found <= FIRST_MS


def comparison(*, hits: int, misses: int, prompt: int = 100, hit_ms: float = 10, miss_ms: float = 50) -> Counter[int]:
    found = [(hit_ms, prompt, prompt)] * hits + [(miss_ms, prompt, 0)] * misses
    return codes(*found)


@pytest.mark.parametrize(("hits", "misses"), [(ENOUGH - 1, 500), (500, ENOUGH - 1), (0, 500), (500, 0), (0, 0)])
def test_too_few_of_either_compare_to_nothing(hits: int, misses: int) -> None:
    compared = Spread(comparison(hits=hits, misses=misses)).compared()
    assert (compared[0].hits, compared[0].misses) == (hits, misses)
    assert (compared[0].hit_p50, compared[0].miss_p50) == (None, None)
    assert like_for_like(compared) == (None, None)
    assert saved_seconds(compared) is None


def test_enough_of_both_say_what_hits_saved() -> None:
    compared = Spread(comparison(hits=ENOUGH, misses=ENOUGH)).compared()
    assert is_near(compared[0].hit_p50, 10)
    assert is_near(compared[0].miss_p50, 50)
    assert saved_seconds(compared) == pytest.approx(ENOUGH * 0.040, rel=0.06)


def test_long_misses_do_not_make_short_hits_look_good() -> None:
    """All misses are long and all hits are short: nothing is alike, so nothing is known."""
    found = comparison(hits=0, misses=500, prompt=50_000, miss_ms=5_000) + comparison(hits=500, misses=0)
    assert saved_seconds(Spread(found).compared()) is None


def test_lengths_count_by_their_hits_and_only_where_both_are_known() -> None:
    found = (
        comparison(hits=300, misses=20)
        + comparison(hits=100, misses=20, prompt=50_000, hit_ms=100, miss_ms=5_000)
        + comparison(hits=900, misses=3, prompt=1_000, hit_ms=1, miss_ms=2)
    )
    compared = Spread(found).compared()
    hit, miss = like_for_like(compared)
    assert is_near(hit, (300 * 10 + 100 * 100) / 400)
    assert is_near(miss, (300 * 50 + 100 * 5_000) / 400)
    assert saved_seconds(compared) == pytest.approx(400 * ((miss or 0) - (hit or 0)) / 1_000)


def test_partly_cached_prompts_are_neither_hits_nor_misses() -> None:
    compared = Spread(codes(*[(10.0, 100, 30)] * 100)).compared()
    assert (compared[0].hits, compared[0].misses) == (0, 0)


def test_there_is_a_comparison_for_every_class_of_lengths() -> None:
    assert [one.prompt_tokens_up_to for one in Spread({}).compared()] == [*PROMPT_TOKENS, None]
