"""A bad row is refused by field and problem, whatever it is, and is no reason to lose the others."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.analytics.columns import ADDED, COUNT_BITS
from controlplane.analytics.rows import (
    AHEAD_SECONDS,
    HELD,
    HELD_NUMBERS,
    MOST,
    MOST_TIMES,
    OLDEST_SECONDS,
    SET_BACK_SECONDS,
    Counted,
    Key,
    Problem,
    gaps_problem,
    judge,
    minute_of,
    numbers_read,
    shown,
    total_read,
)
from engine_agent.contracts.usage import CODES, COUNTS, KINDS, Row, row_document
from engine_agent.contracts.wire import MISSED
from tenants.policy import KvDtype
from tests.support.case_names import case_name

NOW = datetime(2026, 11, 22, 12, 30, 20, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
MINUTE = minute_of(SECONDS)
JUDGE = judge(NOW, {"7": 3, "8": 4})

Anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


def told(**changes: Any) -> dict[str, Any]:
    row = Row(MINUTE, "3", "7", "m", "fp8", "customer", {"requests": 2, "prompt_tokens": 100, "cached_tokens": 40})
    return row_document(row) | {"missed": {"cold": 50, "tail": 10}, "times": [[3, 2]]} | changes


def counts(**changes: Any) -> dict[str, Any]:
    return {"requests": 2, "prompt_tokens": 100, "cached_tokens": 40, **changes}


def test_a_sound_row_is_counted_column_by_column() -> None:
    found = JUDGE.row(told())
    assert isinstance(found, Counted)
    assert (found.key, found.minute) == (Key(3, 7, "m", "fp8", "customer"), MINUTE)
    sums = {name: value for name, value in zip(ADDED, found.added, strict=True) if value}
    assert sums == {**counts(), "missed_cold": 50, "missed_tail": 10}
    assert found.times == [3 << COUNT_BITS | 2]


BAD: list[tuple[Mapping[str, Any], str]] = [
    ({"minute": MINUTE + 1}, "minute"),
    ({"minute": float(MINUTE)}, "minute"),
    ({"minute": True}, "minute"),
    ({"minute": MINUTE - OLDEST_SECONDS}, "minute"),
    ({"minute": MINUTE + AHEAD_SECONDS + SET_BACK_SECONDS + 60}, "minute"),
    ({"minute": 10**30 * 60}, "minute"),
    ({"namespace": "9"}, "namespace"),
    ({"namespace": "07"}, "namespace"),
    ({"namespace": 7}, "namespace"),
    ({"namespace": ["7"]}, "namespace"),
    ({"organisation": "4"}, "organisation"),
    ({"organisation": None}, "organisation"),
    ({"model": ""}, "model"),
    ({"model": "m" * 201}, "model"),
    ({"model": None}, "model"),
    ({"kv_dtype": "fp7"}, "kv_dtype"),
    ({"kv_dtype": {}}, "kv_dtype"),
    ({"kind": "cache"}, "kind"),
    ({"kind": []}, "kind"),
    ({"counts": []}, "counts"),
    ({"counts": counts(tokens=1)}, "counts.tokens"),
    ({"counts": counts(requests=-1)}, "counts.requests"),
    ({"counts": counts(requests=MOST + 1)}, "counts.requests"),
    ({"counts": counts(requests=10**5000)}, "counts.requests"),
    ({"counts": counts(requests=1.0)}, "counts.requests"),
    ({"counts": counts(requests=True)}, "counts.requests"),
    ({"counts": counts(cached_tokens=101)}, "counts.cached_tokens"),
    ({"missed": {"gremlins": 1}}, "missed.gremlins"),
    ({"missed": {"cold": 61}}, "missed"),
    ({"missed": {"cold": 30, "evicted": 31}}, "missed"),
    ({"missed": {"cold": "1"}}, "missed.cold"),
    ({"times": {}}, "times"),
    ({"times": [[CODES, 1]]}, "times.0.0"),
    ({"times": [[-1, 1]]}, "times.0.0"),
    ({"times": [[1, 0]]}, "times.0.1"),
    ({"times": [[1, MOST_TIMES + 1]]}, "times.0.1"),
    ({"times": [[1]]}, "times.0"),
    ({"times": [[1, 2, 3]]}, "times.0"),
    ({"times": [1]}, "times.0"),
    ({"times": ["ab"]}, "times.0"),
    ({"times": [{"a": 1, "b": 2}]}, "times.0"),
    ({"surprise": 1}, "surprise"),
]


def test_a_bad_row_is_refused_by_field(subtests: pytest.Subtests) -> None:
    for changes, field in BAD:
        with subtests.test(msg=case_name(changes, field)):
            found = JUDGE.row(told(**changes))
            assert isinstance(found, Problem)
            assert found.field == field


def test_a_row_that_lacks_a_field_is_refused_by_it(subtests: pytest.Subtests) -> None:
    for missing in sorted(told()):
        with subtests.test(msg=missing):
            row = told()
            del row[missing]
            assert JUDGE.row(row) == Problem(missing, "is missing")


@pytest.mark.parametrize("seconds", [-OLDEST_SECONDS, AHEAD_SECONDS])
def test_the_oldest_and_the_newest_minute_are_taken(seconds: int) -> None:
    minute = minute_of(SECONDS + seconds) + (60 if seconds < 0 else 0)
    assert isinstance(JUDGE.row(told(minute=minute)), Counted)


@pytest.mark.parametrize(("ahead", "counted_in"), [(AHEAD_SECONDS - 60, AHEAD_SECONDS - 60), (3_600, 0), (86_400, 0)])
def test_what_was_counted_before_the_clock_was_set_back_is_counted_now(ahead: int, counted_in: int) -> None:
    found = JUDGE.row(told(minute=MINUTE + ahead))
    assert isinstance(found, Counted)
    assert JUDGE.counted_in(found.minute) == MINUTE + counted_in


def test_every_kind_and_format_that_there_is_is_counted(subtests: pytest.Subtests) -> None:
    for kv_dtype in get_args(KvDtype):
        for kind in KINDS:
            with subtests.test(msg=f"{kind}, {kv_dtype}"):
                assert isinstance(JUDGE.row(told(kind=kind, kv_dtype=kv_dtype)), Counted)


def test_what_an_end_adds_later_has_no_requests_of_its_own() -> None:
    found = JUDGE.row(told(counts={"generated_tokens": 9, "failed": 1}, missed={}, times=[]))
    assert isinstance(found, Counted)


@given(Anything)
def test_whatever_is_told_as_a_row_is_answered(row: Any) -> None:
    assert isinstance(JUDGE.row(row), Problem)


@given(st.sampled_from(sorted(told())), Anything)
def test_whatever_is_told_in_one_field_is_counted_as_it_is_or_refused_by_that_field(field: str, value: Any) -> None:
    found = JUDGE.row(told(**{field: value}))
    if isinstance(found, Problem):
        assert found.field.partition(".")[0] in ({field, "missed"} if field == "counts" else {field})
        assert len(found.problem) <= 300
    else:
        assert all(type(one) is int and one >= 0 for one in (*found.added, *found.times))


Counts = st.dictionaries(st.sampled_from(COUNTS), st.integers(0, MOST))


@given(Counts, st.dictionaries(st.sampled_from(MISSED), st.integers(0, MOST)))
def test_what_is_counted_never_comes_to_more_than_was_asked(some: dict[str, int], missed: dict[str, int]) -> None:
    prompt, cached = some.get("prompt_tokens", 0), some.get("cached_tokens", 0)
    found = JUDGE.row(told(counts=some, missed=missed))
    assert isinstance(found, Counted) == (cached + sum(missed.values()) <= prompt)


@given(st.lists(st.tuples(st.integers(0, CODES - 1), st.integers(1, MOST_TIMES)), max_size=20))
def test_times_keep_their_codes_and_counts(times: list[tuple[int, int]]) -> None:
    found = JUDGE.row(told(times=[list(one) for one in times]))
    assert isinstance(found, Counted)
    assert [(one >> COUNT_BITS, one & 2**COUNT_BITS - 1) for one in found.times] == times
    assert all(one < 2**63 for one in found.times)


@given(Anything)
def test_levels_and_totals_and_gaps_of_any_shape_are_answered(value: Any) -> None:
    assert isinstance(numbers_read("held", value, HELD_NUMBERS), Problem)
    assert gaps_problem("gaps", value) is not None
    total = total_read("totals", value)
    assert isinstance(total, Problem) or len(total) == 3


def curves(**changes: Any) -> dict[str, Any]:
    curve = {"ttl_mode": "sliding", "limit_share": 0.5, "hit_ratios": [0.1, 0.2], "resident_bytes": [1, 2]}
    return {"prompt_tokens": 9, "ttls": [60, 300], "curves": [curve | changes]}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hit_ratios": [0.1]}, ""),
        ({"resident_bytes": [1, float("nan")]}, ".0.resident_bytes.1"),
        ({"limit_share": "all"}, ".0.limit_share"),
        ({"ttl_mode": None}, ".0.ttl_mode"),
        ({"more": 1}, ".0.more"),
    ],
)
def test_curves_have_a_number_for_every_ttl(changes: dict[str, Any], field: str) -> None:
    assert gaps_problem("gaps", curves()) is None
    problem = gaps_problem("gaps", curves(**changes))
    assert problem is not None
    assert problem.field == f"gaps.curves{field}"


@pytest.mark.parametrize(
    ("bad", "field"), [({"host_bytes": True}, "host_bytes"), ({"evicted_blocks": MOST + 1}, "evicted_blocks")]
)
def test_a_number_out_of_bounds_is_refused_by_its_name(bad: dict[str, Any], field: str) -> None:
    sound = dict.fromkeys(HELD, 1)
    assert numbers_read("held", sound, HELD_NUMBERS) == (1,) * len(HELD)
    problem = numbers_read("held", sound | bad, HELD_NUMBERS)
    assert isinstance(problem, Problem)
    assert problem.field == f"held.{field}"


def test_what_is_shown_of_a_value_is_short_and_never_breaks() -> None:
    for value in (10**5000, "x" * 500, "\ud800", [1] * 900, float("inf"), None, True):
        assert len(shown(value)) <= 61
