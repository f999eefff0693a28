"""What agents' counters add up to while a step bakes, whatever becomes of their engines meanwhile."""

from bisect import bisect_left
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.rollouts.counting import MOST_UNCHANGED, AgentNews, Counted, counted_on
from controlplane.rollouts.evidence import (
    BUCKETS,
    Counts,
    Watched,
    counts_read,
    quantile,
    share_slower,
    side_of,
    watched_on,
    watched_read,
    watched_stored,
)
from engine_agent.contracts.wire import TTFT_SECONDS
from tests.fleet.rollouts import counters

few = st.integers(0, 1000)
news = st.builds(
    Counts,
    few,
    few,
    few,
    few,
    few,
    st.lists(few, min_size=BUCKETS, max_size=BUCKETS).map(lambda one: tuple(accumulate(one))),
)


def told(requests: int, **more: Any) -> Counts:
    return counts_read(counters(requests, **more))


def test_what_is_first_seen_is_where_counting_begins() -> None:
    assert watched_on(None, "boot-1", told(500), is_cold=False).sum == Counts()


def test_the_same_heartbeat_seen_again_adds_nothing() -> None:
    once = watched_on(watched_on(None, "boot-1", told(5), is_cold=False), "boot-1", told(9), is_cold=False)
    assert once.sum.requests == 4
    assert watched_on(once, "boot-1", told(9), is_cold=False).sum == once.sum


@given(st.lists(st.tuples(news, st.booleans()), min_size=1, max_size=12))
def test_restarts_reset_the_counters_and_lose_nothing_that_was_seen(steps: list[tuple[Counts, bool]]) -> None:
    """The model: every increase adds up; a restart begins at nothing, and its first counters are all news."""
    boot, cumulative = 0, Counts()
    watched = watched_on(None, "boot-0", cumulative, is_cold=False)
    expected = Counts()
    for more, restarts in steps:
        boot, cumulative = (boot + 1, more) if restarts else (boot, cumulative + more)
        watched = watched_on(watched, f"boot-{boot}", cumulative, is_cold=False)
        expected += more
        assert watched.sum == expected
        assert watched.last == cumulative


def test_counters_that_get_less_without_a_new_boot_are_taken_as_begun_anew() -> None:
    before = watched_on(None, "boot-1", told(100), is_cold=False)
    assert watched_on(before, "boot-1", told(3), is_cold=False).sum == told(3)


@given(news, news, st.booleans())
def test_only_while_it_is_cold_misses_of_another_format_are_left_out(
    first: Counts, more: Counts, is_cold: bool
) -> None:
    watched = watched_on(watched_on(None, "b", first, is_cold=True), "b", first + more, is_cold=is_cold)
    assert watched.left_out == (more.format_misses if is_cold else 0)


@given(st.builds(Watched, st.text(max_size=9), news, news, few))
def test_what_is_stored_is_read_again(watched: Watched) -> None:
    assert watched_read(watched_stored(watched)) == watched


@given(st.lists(st.floats(0.0001, 59), min_size=1, max_size=300))
def test_the_quantile_lies_in_the_bucket_of_the_answer_that_it_is(seconds: list[float]) -> None:
    buckets = [sum(1 for one in seconds if one <= bound) for bound in TTFT_SECONDS]
    found = quantile([*buckets, len(seconds)], 0.95)
    assert found is not None
    exact = sorted(seconds)[max(0, -(-95 * len(seconds) // 100) - 1)]
    place = bisect_left(TTFT_SECONDS, exact)
    assert (TTFT_SECONDS[place - 1] if place else 0) <= found <= TTFT_SECONDS[place]


def test_without_answers_there_is_no_quantile_and_the_slowest_bucket_has_no_end() -> None:
    assert quantile([0] * BUCKETS, 0.95) is None
    assert quantile([0] * len(TTFT_SECONDS) + [7], 0.95) == TTFT_SECONDS[-1]


@given(st.lists(few, min_size=BUCKETS, max_size=BUCKETS).map(lambda one: list(accumulate(one))), st.floats(0.01, 0.99))
def test_the_share_that_is_slower_than_a_quantile_is_the_rest(buckets: list[int], share: float) -> None:
    found = quantile(buckets, share)
    if found is not None and found < TTFT_SECONDS[-1]:
        assert share_slower(buckets, found) == pytest.approx(1 - share)


def test_what_is_slower_than_the_last_bucket_is_what_has_no_end() -> None:
    assert share_slower([3] * len(TTFT_SECONDS) + [4], 1_000) == 0.25
    assert share_slower([0] * BUCKETS, 1) == 0


def test_a_hit_ratio_is_the_sum_of_one_over_the_sum_of_the_other() -> None:
    many = Watched("b", Counts(), told(90, tokens=100, cached=50))
    few_ = Watched("b", Counts(), told(10, tokens=1000, cached=0))
    assert side_of([many, few_]).hit_ratio == 4500 / 19000
    assert side_of([]).hit_ratio is None


# Both sides of a bake


def said(agent: str, requests: int, *, boot: str = "b", kind: str = "engine", current: bool = True) -> AgentNews:
    return AgentNews(agent, kind, boot, counters(requests), current)


def looked(before: Counted, agents: list[AgentNews], *reached: str, now: float = 0.0) -> Counted:
    return counted_on(before, agents, reached, seed="seed", now=now)


def test_each_side_counts_its_own() -> None:
    first = looked(Counted(), [said("a", 1), said("b", 10)], "a")
    changed, unchanged = looked(first, [said("a", 3), said("b", 40)], "a").sides()
    assert (changed.requests, unchanged.requests) == (2, 30)


def test_gateways_and_who_does_not_count_yet_are_no_evidence() -> None:
    silent = AgentNews("c", "engine", "b", None, True)
    assert looked(Counted(), [said("g", 1, kind="gateway"), silent], "g", "c") == Counted()


def test_a_heartbeat_from_before_the_acknowledgement_is_not_counted() -> None:
    assert looked(Counted(), [said("a", 1, current=False)], "a").changed == {}


def test_an_agent_that_is_gone_keeps_what_it_counted() -> None:
    first = looked(Counted(), [said("a", 0)], "a")
    second = looked(first, [said("a", 30)], "a")
    assert looked(second, [], "a").sides()[0].requests == 30


def test_it_is_cold_until_the_old_blocks_would_have_ended() -> None:
    counted = Counted(applied_at={"a": 100.0}, grace_seconds=50)
    assert [counted.is_cold("a", now) for now in (100, 149.9, 150)] == [True, True, False]
    assert not counted.is_cold("b", 120)
    assert not Counted(applied_at={"a": 100.0}).is_cold("a", 100)


def test_of_many_to_compare_with_always_the_same_are_kept() -> None:
    agents = [said(f"agent-{number:03}", 1) for number in range(MOST_UNCHANGED + 50)]
    first = looked(Counted(), agents)
    assert len(first.unchanged) == MOST_UNCHANGED
    assert looked(first, agents[::-1]).unchanged.keys() == first.unchanged.keys()


def test_what_is_kept_between_two_looks_is_read_again() -> None:
    counted = looked(looked(Counted(), [said("a", 1), said("b", 2)], "a"), [said("a", 5), said("b", 5)], "a")
    assert Counted.read(counted.stored()) == counted
