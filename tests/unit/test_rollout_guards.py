"""Guards decide by both sides' numbers, say which, and say nothing on too little."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.rollouts.evidence import Counts, Side, Watched, counts_read, side_of
from controlplane.rollouts.guards import Finding, judge
from controlplane.rollouts.spec import Guards
from tests.fleet.rollouts import counters


def side(requests: int = 1_000, *, left_out: int = 0, **more: object) -> Side:
    counts = counts_read(counters(requests, **more))  # type: ignore[arg-type]
    return side_of([Watched("b", Counts(), counts, left_out)])


def side_told(requests: int, *, slow: int = 0, **more: object) -> Side:
    """`slow` of the answers took ten times as long."""
    fast = counters(requests - slow, seconds=0.04, **more)  # type: ignore[arg-type]
    all_of = counts_read(fast) + counts_read(counters(slow, seconds=0.4, **more)) if slow else counts_read(fast)  # type: ignore[arg-type]
    return side_of([Watched("b", Counts(), all_of, 0)])


def found(guard: str, changed: Side, unchanged: Side, **guards: object) -> Finding:
    (one,) = [one for one in judge(Guards(**guards), changed, unchanged) if one.guard == guard]  # type: ignore[arg-type]
    return one


def test_a_lower_hit_ratio_breaches_with_both_numbers_in_words() -> None:
    finding = found("hit_ratio_drop", side(cached=61), side(cached=72))
    assert finding.verdict == "breached"
    assert (finding.changed, finding.unchanged) == (0.61, 0.72)
    assert finding.words == "hit ratio 61.0% against 72.0% elsewhere; 5.0% less is the most"


@pytest.mark.parametrize(("cached", "verdict"), [(75, "kept"), (80, "kept"), (74, "breached")])
def test_a_hit_ratio_may_be_lower_by_its_bound_and_no_more(cached: int, verdict: str) -> None:
    changed, unchanged = side(10_000, cached=cached), side(10_000, cached=80)
    assert found("hit_ratio_drop", changed, unchanged, hit_ratio_drop=0.0500001).verdict == verdict


def test_misses_that_the_change_itself_causes_do_not_count_against_it() -> None:
    cold = side(cached=40, missed={"dtype": 49_000}, left_out=49_000)
    assert found("hit_ratio_drop", cold, side(cached=78)).verdict == "kept"
    assert found("hit_ratio_drop", side(cached=40, missed={"dtype": 49_000}), side(cached=78)).verdict == "breached"


def test_where_everything_is_missed_because_of_the_change_nothing_is_known() -> None:
    cold = side(cached=0, left_out=100_000)
    finding = found("hit_ratio_drop", cold, side(cached=78))
    assert finding.verdict == "too little"
    assert "reached agents" in finding.words


def test_slower_first_tokens_breach() -> None:
    finding = found("ttft_p95_rise", side(seconds=0.4), side(seconds=0.04))
    assert finding.verdict == "breached"
    assert "ms (p95) against" in finding.words
    assert found("ttft_p95_rise", side(seconds=0.04), side(seconds=0.04)).verdict == "kept"


def test_more_errors_breach_and_as_many_as_elsewhere_do_not() -> None:
    finding = found("error_ratio", side(errors=50), side(errors=10))
    assert finding.verdict == "breached"
    assert finding.words.startswith("5.0% of 1000 requests failed, 1.0% of 1000 elsewhere")
    assert found("error_ratio", side(errors=50), side(errors=40)).verdict == "kept"


def test_an_engine_that_only_fails_is_evidence_though_it_answered_nothing() -> None:
    failing = Side(1, Counts(requests=0, errors=50), 0)
    assert found("error_ratio", failing, side()).verdict == "breached"


@pytest.mark.parametrize("sides", [(19, 100), (100, 19), (0, 0)])
def test_too_little_on_either_side_decides_nothing(sides: tuple[int, int]) -> None:
    changed, unchanged = (side(requests, errors=requests, cached=0, seconds=9) for requests in sides)
    findings = judge(Guards(), changed, unchanged)
    assert {one.verdict for one in findings} == {"too little"}
    assert all(f"{sides[0]} requests on reached agents and {sides[1]} on the others" in one.words for one in findings)


def test_a_guard_that_is_null_is_not_asked() -> None:
    assert [one.guard for one in judge(Guards(hit_ratio_drop=None, error_ratio=None), side(), side())] == [
        "ttft_p95_rise"
    ]


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 100), st.integers(0, 100), st.floats(0, 1))
def test_a_breach_is_worse_than_its_bound_and_nothing_kept_is(
    requests: int, others: int, cached: int, cached_elsewhere: int, bound: float
) -> None:
    changed, unchanged = side(requests, cached=cached), side(others, cached=cached_elsewhere)
    finding = found("hit_ratio_drop", changed, unchanged, hit_ratio_drop=bound)
    if min(requests, others) < 20:
        assert finding.verdict == "too little"
    else:
        assert finding.changed is not None
        assert finding.unchanged is not None
        assert (finding.verdict == "kept") is (finding.unchanged - finding.changed <= bound)


@pytest.mark.parametrize(
    ("guard", "changed", "unchanged"),
    [
        ("hit_ratio_drop", {"cached": 80}, {"cached": 90}),
        ("error_ratio", {"errors": 2}, {"errors": 0}),
        ("ttft_p95_rise", {"slow": 2}, {"slow": 0}),
    ],
)
def test_what_chance_alone_does_on_few_requests_is_neither_a_breach_nor_evidence_to_go_on(
    guard: str, changed: dict[str, int], unchanged: dict[str, int]
) -> None:
    """18 of 20 against 16 of 20 is nothing; the same shares of a thousand are."""
    few = found(guard, side_told(20, **changed), side_told(20, **unchanged))
    assert few.verdict == "too little"
    assert few.words.endswith("on so few requests this may be chance")
    many = {name: count * 50 if name != "cached" else count for name, count in changed.items()}
    assert found(guard, side_told(1_000, **many), side_told(1_000, **unchanged)).verdict == "breached"


def test_great_harm_takes_few_requests() -> None:
    assert found("hit_ratio_drop", side(20, cached=8), side(20, cached=90)).verdict == "breached"
    assert found("error_ratio", side(20, errors=20), side(20)).verdict == "breached"
    assert found("ttft_p95_rise", side(20, seconds=0.4), side(20, seconds=0.04)).verdict == "breached"


def test_agents_that_do_alike_are_hardly_ever_taken_for_worse() -> None:
    """A thousand bakes of thirty looks each, at nine hits in ten: five in a hundred would be too many."""
    chance = random.Random(7)
    breached = sum(is_ever_breached(chance) for _ in range(1_000))
    assert breached <= 20


def is_ever_breached(chance: random.Random) -> bool:
    changed = unchanged = 0
    for look in range(1, 31):
        changed += sum(chance.random() < 0.9 for _ in range(10))
        unchanged += sum(chance.random() < 0.9 for _ in range(10))
        counts = [
            Counts(requests=look * 10, prompt_tokens=look * 10, cached_tokens=one) for one in (changed, unchanged)
        ]
        sides = [Side(1, one, 0) for one in counts]
        if any(one.verdict == "breached" for one in judge(Guards(), *sides)):
            return True
    return False


@given(st.integers(20, 300), st.integers(20, 300), st.integers(0, 100))
def test_agents_that_do_alike_never_breach(requests: int, others: int, cached: int) -> None:
    alike = judge(Guards(), side(requests, cached=cached), side(others, cached=cached))
    assert {one.verdict for one in alike} == {"kept"}
