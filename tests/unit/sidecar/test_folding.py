"""Folding: however a journal is cut into pages, and whenever reading begins anew, each record counts once."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.contracts.usage import COUNTS, KEY_COUNTS, KINDS, MOST_KEY_ROWS, MOST_ROWS
from engine_agent.contracts.wire import MISSED, Batch, batch_decode, batch_encode
from engine_agent.journal.records import Entry, Record
from engine_agent.sidecar import folding
from engine_agent.sidecar.folding import BootFold, Mark, Range, Rows, mark_document, mark_read, usage_reports
from engine_agent.sidecar.holder import JournalPage
from tests.unit.sidecar.journals import AT, closed, documents, opened, records, recounted, summed, told_rows


def page(all_of: list[Record], after: int, limit: int) -> JournalPage:
    entries = [Entry(number, one) for number, one in enumerate(all_of, 1)][after : after + limit]
    return JournalPage(entries[-1].sequence if entries else after, entries)


def counted(all_of: list[Record], *, is_over: bool = False) -> Any:
    fold = BootFold()
    ranges = fold.take(page(all_of, 0, len(all_of) + 1))
    if is_over:
        ranges += fold.end(len(all_of))
    return summed(rows_of(ranges))


def rows_of(ranges: list[Range]) -> list[Any]:
    return [row for one in ranges for row in documents(list(one.rows))]


@given(records(), st.booleans(), st.data())
def test_any_pages_and_any_restarts_count_each_record_once(
    all_of: list[Record], is_over: bool, data: st.DataObject
) -> None:
    told, fold = list[Any](), BootFold()
    mark = fold.mark
    while fold.upto < len(all_of):
        limit = data.draw(st.integers(2, 7))
        before = fold.upto
        ranges = fold.take(page(all_of, fold.after, limit))
        if data.draw(st.sampled_from(["go on", "go on", "die before it is told", "die after it is told"])) == "go on":
            told += rows_of(ranges)
            mark = fold.mark if fold.upto > before else mark
        elif data.draw(st.booleans()):
            fold = BootFold(mark_read(mark_document(mark)))
        elif fold.upto > before:
            told += rows_of(ranges)
            mark = fold.mark
            fold = BootFold(mark_read(mark_document(mark)))
    if is_over:
        told += _ended(all_of, mark)
    assert summed(told) == recounted([all_of], over=[is_over])


def _ended(all_of: list[Record], mark: Mark) -> list[Any]:
    """By another process."""
    fold = BootFold(mark)
    ranges = fold.take(page(all_of, fold.after, len(all_of))) if fold.after < len(all_of) else []
    return rows_of([*ranges, *fold.end(len(all_of))])


def test_what_an_end_adds_is_of_the_minute_in_which_the_request_was_opened() -> None:
    found = counted([opened(AT), opened(AT + 120), closed(1, at=AT + 3_600, generated_tokens=20)])
    minutes = {key[0]: count for key, count in found.items() if key[-1] == "generated_tokens"}
    assert minutes == {1_789_999_980: 20}


def test_an_end_says_how_it_came_and_how_long_it_took() -> None:
    ends = [closed(n, outcome=how) for n, how in enumerate(["stop", "length", "cancelled", "error", "deadline"], 1)]
    names = [(key[-1], count) for key, count in counted([*[opened()] * 5, *ends]).items()]
    assert dict(one for one in names if one[0] in COUNTS) == {
        "requests": 5,
        "prompt_tokens": 5 * 512,
        "cached_tokens": 5 * 496,
        "generated_tokens": 100,
        "cancelled": 1,
        "failed": 2,
    }
    assert sum(count for name, count in names if name[0] == "times") == 10


def test_a_second_attempt_is_one_that_was_retried() -> None:
    assert [count for key, count in counted([opened(attempt=2)]).items() if key[-1] == "retried"] == [1]


def test_what_is_open_when_its_engine_is_gone_was_cut_off_but_for_warm_ups() -> None:
    found = counted([opened(), opened(kind="probe"), opened(kind="pin")], is_over=True)
    assert {key[-2]: count for key, count in found.items() if key[-1] == "cut_off"} == {"customer": 1, "probe": 1}


def test_rows_say_nothing_that_the_wire_does_not_know() -> None:
    rows = Rows()
    rows.opened(opened(missed={"cold": 16, "of another version": 3}))
    (row,) = documents(list(rows))
    assert row["missed"] == {"cold": 16}
    assert row["counts"].keys() <= set(COUNTS)
    assert row["missed"].keys() <= set(MISSED)
    assert row["kind"] in KINDS


def test_an_end_that_never_comes_does_not_keep_the_journal_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr(folding, "MOST_BEHIND", 10)
    fold = BootFold()
    others = [one for number in range(2, 20, 2) for one in (opened(), closed(number))]
    ranges = fold.take(page([opened(), *others], 0, 100))
    assert fold.mark.oldest_open is None
    assert sum(row["counts"].get("cut_off", 0) for row in rows_of(ranges)) == 1


def test_lost_records_are_counted_once_however_often_they_are_read_again() -> None:
    fold = BootFold()
    (first,) = fold.take(JournalPage(5, [Entry(1, opened()), Entry(4, opened())], [(2, 3), (5, 5)]))
    (then,) = fold.take(JournalPage(9, [Entry(4, opened()), Entry(8, opened())], [(5, 7), (9, 9)]))
    assert (first.lost, then.lost) == (3, 3)


def many(count: int) -> list[Record]:
    """Each of another row."""
    return [opened(namespace_id=str(number)) for number in range(count)]


def test_many_rows_are_told_as_ranges_that_follow_on_each_other() -> None:
    fold = BootFold()
    ranges = fold.take(page(many(MOST_ROWS + 1), 0, 1_000))
    first, last = usage_reports("b1", fold.born, ranges, {"1": [1, 2, 3]})
    assert [(one.told["after"], one.told["upto"]) for one in (first, last)] == [
        (0, len(first.told["rows"])),
        (450, 501),
    ]
    assert (first.told["totals"], last.told["totals"]) == ({}, {"1": [1, 2, 3]})
    assert batch_decode(batch_encode(Batch(0.0, "s", 1, [first, last], None))).reports == [first, last]


def test_a_large_row_is_told_without_many_others(monkeypatch: Any) -> None:
    monkeypatch.setattr(folding, "MOST_REPORT_BYTES", 1_000)
    told = usage_reports("b1", None, BootFold().take(page(many(9), 0, 9)), None)
    assert len(told) > 2
    assert len(told_rows(told)) == 9


def test_the_ends_that_never_came_are_told_as_ranges_of_which_none_is_told_twice() -> None:
    fold = BootFold()
    fold.take(page(many(MOST_ROWS + 1), 0, 1_000))
    first, last = fold.end(MOST_ROWS + 1)
    assert (first.after, first.upto, last.after, last.upto) == (501, 951, 951, 1002)
    again = BootFold(Mark(first.upto, 1, None, fold.born))
    assert again.take(page(many(MOST_ROWS + 1), 0, 1_000)) == []
    (rest,) = again.end(MOST_ROWS + 1)
    assert (rest.after, rest.upto, rows_of([rest])) == (last.after, last.upto, rows_of([last]))


@given(records(), st.integers(2, 7))
def test_of_every_report_the_keys_of_customers_come_to_what_its_rows_do(all_of: list[Record], limit: int) -> None:
    fold, reports = BootFold(), list[Any]()
    while fold.upto < len(all_of):
        reports += usage_reports("b1", fold.born, fold.take(page(all_of, fold.after, limit)), None)
    for report in reports:
        rows = [row for row in report.told["rows"] if row["kind"] == "customer"]
        by_row, by_key = Counter[Any](), Counter[Any]()
        for row in rows:
            place = (row["minute"], row["namespace"], row["model"])
            by_row.update({(*place, name): row["counts"].get(name, 0) for name in KEY_COUNTS})
        for minute, namespace, model, _, *counts in report.told["keys"]:
            by_key.update({(minute, namespace, model, name): one for name, one in zip(KEY_COUNTS, counts, strict=True)})
        assert +by_key == +by_row


def test_each_request_counts_for_its_key_and_its_end_for_the_same() -> None:
    all_of = [opened(AT, key_id="one"), opened(AT, key_id="two"), opened(AT), opened(AT, kind="probe", key_id="one")]
    (report,) = usage_reports("b1", 1, BootFold().take(page([*all_of, closed(2, generated_tokens=20)], 0, 9)), None)
    place = [1_789_999_980, "12", "demo"]
    assert report.told["keys"] == [
        [*place, "one", 1, 512, 496, 0],
        [*place, "two", 1, 512, 496, 20],
        [*place, None, 1, 512, 496, 0],
    ]


def test_many_keys_are_told_as_ranges_that_fit() -> None:
    all_of: list[Record] = [opened(key_id=f"key-{number}") for number in range(MOST_KEY_ROWS + 1)]
    ranges = BootFold().take(page(all_of, 0, 2_000))
    told = usage_reports("b1", None, ranges, None)
    assert batch_decode(batch_encode(Batch(0.0, "s", 1, told, None))).reports == told
    assert [len(one.told["keys"]) for one in told] == [MOST_KEY_ROWS, 1]


def test_an_end_without_its_beginning_adds_nothing() -> None:
    assert counted([closed(7)]) == {}


def test_a_page_of_another_journal_is_known_by_the_record_that_was_read_last() -> None:
    fold = BootFold()
    fold.take(JournalPage(2, [Entry(1, opened()), Entry(2, opened())]))
    assert fold.is_of(JournalPage(3, [Entry(2, opened()), Entry(3, closed(1))]))
    assert not fold.is_of(JournalPage(3, [Entry(2, opened(AT + 1)), Entry(3, closed(1))]))
