"""What reports tell by key is a part of what their rows say, and of nothing else."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.analytics.key_rows import KeyKey
from controlplane.analytics.rows import judge, minute_of
from controlplane.analytics.tally import Tally, keys_told
from engine_agent.contracts.usage import Row, row_document
from engine_agent.contracts.wire import Report

NOW = datetime(2026, 11, 22, 12, 30, 20, tzinfo=UTC)
MINUTE = minute_of(NOW.timestamp())
OURS, THEIRS = "0192f3a0-7d1c-4c3e-9a55-4f6f2f0e8d11", "0192f3a0-7d1c-4c3e-9a55-4f6f2f0e8d22"
PLACE = [MINUTE, "7", "m"]


def row(*, kind: Any = "customer", kv_dtype: str = "fp8", requests: int = 10, **changes: Any) -> dict[str, Any]:
    counts = {"requests": requests, "prompt_tokens": 100 * requests, "cached_tokens": 50 * requests}
    told = Row(MINUTE, "3", "7", "m", kv_dtype, kind, {**counts, "generated_tokens": 5 * requests})
    return row_document(told) | changes


def part(key: Any, requests: Any = 1, **changes: Any) -> list[Any]:
    counts = [100 * requests, 50 * requests, 5 * requests] if type(requests) is int else [1, 1, 1]
    return [*PLACE, key, requests, *counts]


def taken(rows: list[Any], keys: list[Any] | None, *, times: int = 1, **changes: Any) -> Tally:
    found = Tally(judge(NOW, {"7": 3, "8": 4}), NOW, key_owners={OURS: 3, THEIRS: 4})
    told = {"boot": "b", "upto": 1, "rows": rows, "totals": {}, "lost": 0, "keys": keys, **changes}
    for number in range(times):
        found.take("agent-1", number + 1, Report("usage", told))
    return found


def counted(found: Tally) -> dict[str, list[int]]:
    return {key.key: added for (_, key, _), added in found.by_key.items()}


def refused(found: Tally) -> list[str]:
    return [one.field for one in found.refused.get("agent-1", ())]


def test_each_key_has_its_part_and_those_without_one_too() -> None:
    found = taken([row()], [part(OURS, 7), part(None, 3)])
    assert counted(found) == {OURS: [7, 700, 350, 35], "": [3, 300, 150, 15]}
    assert set(found.by_key) == {("agent-1", KeyKey(3, 7, "m", key), MINUTE) for key in (OURS, "")}
    assert refused(found) == []


def test_rows_of_several_formats_are_one_whole_for_keys() -> None:
    assert counted(taken([row(requests=4), row(requests=6, kv_dtype="int4")], [part(OURS, 10)]))[OURS][0] == 10


def test_parts_of_a_minute_add_up() -> None:
    assert counted(taken([row()], [part(OURS, 4)], times=3)) == {OURS: [12, 1_200, 600, 60]}


def test_a_report_without_keys_counts_for_none() -> None:
    found = taken([row()], None)
    assert (counted(found), refused(found), found.counted_rows) == ({}, [], 1)


@given(st.lists(st.tuples(st.sampled_from([OURS, None]), st.integers(0, 8)), max_size=6))
def test_keys_never_have_more_than_their_rows_whatever_is_told(parts: list[tuple[str | None, int]]) -> None:
    found = taken([row(requests=10)], [part(key, requests) for key, requests in parts])
    sums = [sum(column) for column in zip(*counted(found).values(), strict=True)]
    assert all(one <= most for one, most in zip(sums, [10, 1_000, 500, 50], strict=False))


def test_what_is_no_part_of_the_rows_is_refused_by_name_and_the_rest_is_counted(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Any, str]] = [
        (part(OURS, 11), "requests"),
        ([*PLACE, OURS, 1, 1_001, 0, 0], "prompt_tokens"),
        (part(OURS, -1), "requests"),
        (part(OURS, True), "requests"),
        (part(OURS, "1"), "requests"),
        (part(THEIRS), "key"),
        (part("sk-secret"), "key"),
        (part(""), "key"),
        (part([OURS]), "key"),
        ([MINUTE - 60, "7", "m", OURS, 1, 1, 1, 1], "minute"),
        ([MINUTE, "8", "m", OURS, 1, 1, 1, 1], "minute"),
        ([MINUTE, "7", "n", OURS, 1, 1, 1, 1], "minute"),
        ([[], "7", "m", OURS, 1, 1, 1, 1], "minute"),
        ([*PLACE, OURS, 1], "row"),
        ({}, "row"),
        (None, "row"),
    ]
    for told, field in cases:
        with subtests.test(msg=f"{told!r}, {field!r}"):
            found = taken([row()], [part(None, 2), told, part(OURS, 3)])
            assert refused(found) == [f"keys.1.{field}"]
            assert {key: one[0] for key, one in counted(found).items()} == {"": 2, OURS: 3}
            assert found.counted_rows == 1


@pytest.mark.parametrize("kind", ["probe", "pin"])
def test_what_is_nobodys_number_is_no_keys_either(kind: Any) -> None:
    found = taken([row(kind=kind)], [part(OURS)])
    assert (counted(found), refused(found)) == ({}, ["keys.0.minute"])


def test_a_refused_row_is_said_once_and_its_keys_count_nothing() -> None:
    found = taken([row(minute=MINUTE - 60 * 60 * 49)], [part(OURS)])
    assert (counted(found), refused(found)) == ({}, ["minute"])


def test_what_is_known_already_counts_no_key_again() -> None:
    found = taken([row()], [part(OURS, 10)], times=3, after=0, upto=1)
    assert counted(found) == {OURS: [10, 1_000, 500, 50]}


def test_only_what_can_be_a_keys_id_is_asked_for() -> None:
    told = {"rows": [], "keys": [part(OURS), part(None), part("sk-secret"), part(OURS.upper()), part(7), [], 3]}
    assert keys_told([Report("usage", told), Report("levels", {}), Report("usage", {"rows": []})]) == {OURS}
