"""What reports come to before it is written: rows of one minute are one, what left a cache is counted once."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.analytics.columns import ADDED, BLOCK_COLUMNS, CACHE_KIND
from controlplane.analytics.rows import Key, judge, minute_of
from controlplane.analytics.tally import Held, Pool, Tally, Total, namespaces_told
from engine_agent.contracts.usage import Row, row_document
from engine_agent.contracts.wire import Report

NOW = datetime(2026, 11, 22, 12, 30, 20, tzinfo=UTC)
AT = NOW.timestamp()
MINUTE = minute_of(AT)
KEY = Key(3, 7, "m", "fp8", "customer")
CACHE = Key(3, 7, "", "", CACHE_KIND)


def tally(held: Mapping[str, Mapping[int, Held]] | None = None) -> Tally:
    return Tally(judge(NOW, {"7": 3, "8": 3}), NOW, held or {})


def row(prompt: int = 100, **changes: Any) -> dict[str, Any]:
    return (
        row_document(Row(MINUTE, "3", "7", "m", "fp8", "customer", {"requests": 1, "prompt_tokens": prompt})) | changes
    )


def usage(*rows: Any, **changes: Any) -> Report:
    return Report("usage", {"boot": "b", "upto": 1, "rows": list(rows), "totals": {}, "lost": 0, **changes})


def levels(expired: int, *, boot: str = "b", at: float = AT, namespace: str = "7", used: int = 5) -> Report:
    numbers = {"resident_bytes": 10, "host_bytes": 0, **dict.fromkeys(BLOCK_COLUMNS, 0), "expired_blocks": expired}
    pool = {"capacity_bytes": 100, "used_bytes": used, "evictable_bytes": 1}
    told = {"boot": boot, "at": at, "pool": pool, "preemptions": 2, "namespaces": {namespace: numbers}}
    return Report("levels", told)


def taken(*reports: Report, held: Mapping[str, Mapping[int, Held]] | None = None) -> Tally:
    found = tally(held)
    for number, report in enumerate(reports, 1):
        found.take("agent-1", number, report)
    return found


def added(found: Tally, name: str, key: Key = KEY) -> int:
    return sum(one.added[ADDED.index(name)] for (_, whose, _), one in found.minutes.items() if whose == key)


@given(st.lists(st.lists(st.integers(0, 1000), max_size=5), max_size=5))
def test_rows_of_one_minute_add_up_however_they_are_split(parts: list[list[int]]) -> None:
    found = taken(*(usage(*(row(one, times=[[5, 1]]) for one in part)) for part in parts))
    prompts = [one for part in parts for one in part]
    assert added(found, "prompt_tokens") == sum(prompts)
    assert added(found, "requests") == len(prompts)
    assert len(found.minutes) == bool(prompts)
    assert sum(len(one.times) for one in found.minutes.values()) == len(prompts)


def test_the_ledger_counts_the_same_by_boot_and_day() -> None:
    found = taken(usage(row(100)), usage(row(50)), usage(row(7), boot="c"))
    assert found.ledger == {
        ("agent-1", "b", 7, MINUTE // 86_400): [2, 150, 0, 0, 1],
        ("agent-1", "c", 7, MINUTE // 86_400): [1, 7, 0, 0, 1],
    }


def test_a_bad_row_is_named_by_report_and_place_and_the_others_are_counted() -> None:
    found = taken(usage(row(1)), usage(row(2), row(-3), row(4)))
    (refused,) = found.refused["agent-1"]
    assert (refused.report, refused.row, refused.field) == (2, 1, "counts.prompt_tokens")
    assert added(found, "prompt_tokens") == 7


def test_records_that_are_lost_are_said() -> None:
    found = taken(usage(lost=9))
    assert found.lost_records == 9
    assert [one.field for one in found.refused["agent-1"]] == ["lost"]


def test_of_an_engines_totals_the_furthest_count() -> None:
    found = taken(usage(upto=9, totals={"7": [1, 2, 3]}), usage(upto=5, totals={"7": [0, 0, 0], "99": [1, 1, 1]}))
    assert found.totals == {("agent-1", "b", 7): Total([1, 2, 3], 9)}
    assert [one.field for one in found.refused["agent-1"]] == ["totals.'99'"]


def test_blocks_are_counted_as_they_leave_and_once() -> None:
    found = taken(levels(5), levels(5), levels(9))
    assert added(found, "expired_blocks", CACHE) == 9


def test_what_was_told_before_is_not_counted_again() -> None:
    before = {"agent-1": {7: Held("b", (10, 0, 5, 0, 0, 0), AT - 60)}}
    assert added(taken(levels(8), held=before), "expired_blocks", CACHE) == 3


def test_an_engine_that_counts_anew_is_counted_whole() -> None:
    before = {"agent-1": {7: Held("b", (10, 0, 5, 0, 0, 0), AT - 60)}}
    assert added(taken(levels(3), held=before), "expired_blocks", CACHE) == 3
    assert added(taken(levels(8, boot="c"), held=before), "expired_blocks", CACHE) == 8


@given(st.lists(st.integers(0, 50), min_size=1))
def test_blocks_of_one_boot_come_to_what_it_told_last(steps: list[int]) -> None:
    told = [sum(steps[: place + 1]) for place in range(len(steps))]
    assert added(taken(*map(levels, told)), "expired_blocks", CACHE) == told[-1]


def test_a_namespace_that_is_not_named_holds_nothing_and_its_blocks_are_remembered() -> None:
    found = taken(levels(5), levels(1, namespace="8"), levels(6))
    assert found.residences["agent-1"][8].numbers == (0, 0, 1, 0, 0, 0)
    assert found.residences["agent-1"][7].numbers == (10, 0, 6, 0, 0, 0)
    assert added(found, "expired_blocks", CACHE) == 6


def test_a_pool_is_as_full_as_it_ever_was_in_its_minute() -> None:
    found = taken(levels(0, used=5), levels(0, used=9), levels(0, used=3))
    assert found.pools == {("agent-1", MINUTE): Pool("b", 100, 9, 1, 2)}


def test_levels_of_last_week_are_refused() -> None:
    found = taken(levels(5, at=AT - 7 * 86_400))
    assert [one.field for one in found.refused["agent-1"]] == ["at"]
    assert not found.residences
    assert not found.minutes


def test_the_namespaces_that_reports_speak_of_are_found_whatever_else_they_say() -> None:
    reports = [usage(row(), {"namespace": ["x"]}, 7, totals={"8": None, "x": 1, "٣": 1}), levels(1, namespace="9")]
    assert namespaces_told(reports) == {7, 8, 9}


def test_ids_have_at_most_18_digits() -> None:
    longest = "9" * 18
    assert namespaces_told([usage(totals={longest: None, f"{longest}9": None})]) == {int(longest)}
