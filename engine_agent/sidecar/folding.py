"""Aggregate an engine's journal into usage rows of one minute. No I/O.

A request counts in the minute in which it was opened, and so does what its end adds, however late it comes. So the
reader must remember the open requests. After a restart it finds them by reading again, without counting, from the
oldest of them: a `Mark` says where to start and how far records are counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from engine_agent.contracts.usage import (
    MINUTE_SECONDS,
    MOST_KEY_ROWS,
    MOST_ROWS,
    KeyRow,
    Kind,
    Row,
    key_row_told,
    row_document,
    time_code,
)
from engine_agent.contracts.wire import MISSED, Report
from engine_agent.journal.records import Closed, Entry, Opened, first_known, line_of
from engine_agent.sidecar.holder import JournalPage

# If the end of an `Opened` has not come after so many records, its line was damaged. Until then the open request keeps
# the journal from being cut, so this is some 300 MiB of journal.
MOST_BEHIND = 1_000_000
MOST_GIVEN_UP = 50  # most open requests that one record may expire, so that a report's rows stay few
MOST_REPORT_BYTES = 256 * 1024
# Approximate sizes in a report: of a row without names and times, of one time, of a key's row without the model's name.
ROW_BYTES, TIME_BYTES, KEY_BYTES = 450, 16, 120
ENDS = {"cancelled": "cancelled", "error": "failed", "deadline": "failed"}  # outcomes, and the counter of each


class _Key(NamedTuple):
    """The key of a usage row."""

    minute: int
    organisation: str
    namespace: str
    model: str
    kv_dtype: str
    kind: Kind


class _Caller(NamedTuple):
    """The key of a usage row by API key."""

    minute: int
    namespace: str
    model: str
    key_id: str


@dataclass(frozen=True, slots=True)
class _Open:
    key: _Key
    caller: _Caller | None  # None: not a customer's request
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class _Sums:
    counts: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    times: Counter[int] = field(default_factory=Counter)


class Rows:
    """Usage rows while they are summed, one per key."""

    def __init__(self) -> None:
        self._sums: dict[_Key, _Sums] = {}
        self._by_caller: dict[_Caller, list[int]] = {}  # values in the order of KEY_COUNTS
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Return whether there is room for at most one more record."""
        has_room = len(self._sums) < MOST_ROWS - MOST_GIVEN_UP and len(self._by_caller) < MOST_KEY_ROWS
        return not has_room or self._bytes >= MOST_REPORT_BYTES

    def __iter__(self) -> Iterator[Row]:
        """Yield the usage rows without counters that are 0."""
        for key, sums in self._sums.items():
            yield Row(*key, +sums.counts, +sums.missed, +sums.times)

    @property
    def by_key(self) -> Iterator[KeyRow]:
        """Yield rows of customers' requests by API key."""
        for caller, counts in self._by_caller.items():
            yield KeyRow(*caller, counts)

    @property
    def namespaces(self) -> set[str]:
        """Return the ids of namespaces with customers' requests."""
        return {key.namespace for key in self._sums if key.kind == "customer"}

    def opened(self, record: Opened) -> _Open:
        request = _Open(_key(record), _caller(record), record.prompt_tokens, record.cached_tokens)
        sums = self._of(request)
        sums.counts["requests"] += 1
        sums.counts["prompt_tokens"] += record.prompt_tokens
        sums.counts["cached_tokens"] += record.cached_tokens
        sums.counts["retried"] += record.attempt > 1
        for reason in MISSED:
            sums.missed[reason] += record.missed.get(reason, 0)
        self._count_by_key(request, 1, record.prompt_tokens, record.cached_tokens, 0)
        return request

    def closed(self, opened: _Open, record: Closed) -> None:
        sums = self._of(opened)
        sums.counts["generated_tokens"] += record.generated_tokens
        if name := ENDS.get(record.outcome):
            sums.counts[name] += 1
        tokens = {"prompt_tokens": opened.prompt_tokens, "cached_tokens": opened.cached_tokens}
        if record.ttft_ms is not None:
            sums.times[time_code("ttft", milliseconds=record.ttft_ms, **tokens)] += 1
        sums.times[time_code("duration", milliseconds=record.duration_ms, **tokens)] += 1
        self._bytes += 2 * TIME_BYTES
        self._count_by_key(opened, 0, 0, 0, record.generated_tokens)

    def cut_off(self, opened: _Open) -> None:
        self._of(opened).counts["cut_off"] += 1

    def _count_by_key(self, opened: _Open, *counts: int) -> None:
        if (caller := opened.caller) is None or not any(counts):
            return
        sums = self._by_caller.get(caller)
        if sums is None:
            self._bytes += KEY_BYTES + len(caller.model)
            sums = self._by_caller[caller] = [0] * len(counts)
        for index, count in enumerate(counts):
            sums[index] += count

    def _of(self, opened: _Open) -> _Sums:
        if opened.key not in self._sums:
            self._sums[opened.key] = _Sums()
            self._bytes += ROW_BYTES + len(opened.key.model)
        return self._sums[opened.key]


def _key(record: Opened) -> _Key:
    owner_ids = (record.organisation_id, record.namespace_id)
    return _Key(_minute(record), *owner_ids, record.model, record.kv_dtype, record.kind)


def _caller(record: Opened) -> _Caller | None:
    is_customers = record.kind == "customer"
    return _Caller(_minute(record), record.namespace_id, record.model, record.key_id) if is_customers else None


def _minute(record: Opened) -> int:
    return int(record.at // MINUTE_SECONDS) * MINUTE_SECONDS


@dataclass(slots=True)
class Range:
    """The rows of the records after number `after`, up to `upto`: the content of one report."""

    after: int
    upto: int
    rows: Rows = field(default_factory=Rows)
    lost: int = 0

    def lose(self, lost: Iterable[tuple[int, int]]) -> None:
        """Set `lost` to the number of lost records within this range."""
        self.lost = sum(max(0, min(last, self.upto) - max(first, self.after + 1) + 1) for first, last in lost)


@dataclass(frozen=True, slots=True)
class Mark:
    """The position up to which one boot's journal is counted, in a form that can be saved."""

    upto: int = 0
    oldest_open: int | None = None
    # Number and checksum of the last intact record so far, and checksum of the first. They reveal a different journal
    # of the same name.
    stands_on: tuple[int, int] | None = None
    born: int | None = None
    is_over: bool = False  # the boot has ended, and its open requests are counted as cut off

    @property
    def after(self) -> int:
        """Return the number after which reading must continue."""
        if self.oldest_open is not None:
            return self.oldest_open - 1
        return self.upto if self.stands_on is None else self.stands_on[0] - 1

    @property
    def needless(self) -> int:
        """Return the number up to which records are never read again."""
        return min(self.after, self.upto if self.stands_on is None else self.stands_on[0] - 1)


def mark_document(mark: Mark) -> list[Any]:
    return [mark.upto, mark.oldest_open, mark.stands_on and list(mark.stands_on), mark.born, mark.is_over]


def mark_read(fields: Sequence[Any]) -> Mark:
    upto, oldest_open, stands_on, born, is_over = fields
    return Mark(upto, oldest_open, None if stands_on is None else (stands_on[0], stands_on[1]), born, is_over)


class BootFold:
    """The aggregation of one boot's journal, page by page.

    Records after `upto` are counted; earlier ones only restore the open requests.
    """

    def __init__(self, mark: Mark = Mark()) -> None:
        self.upto, self.is_over = mark.upto, mark.is_over
        self.after = mark.after  # the number after which the next page must begin
        self._stands_on, self.born = mark.stands_on, mark.born
        self._open: dict[int, _Open] = {}  # by number, oldest first

    @property
    def mark(self) -> Mark:
        """Return the mark to save. Valid only while no records are being read again."""
        return Mark(self.upto, next(iter(self._open), None), self._stands_on, self.born, self.is_over)

    def is_of(self, page: JournalPage) -> bool:
        """Return False if the page belongs to a different journal than the one read so far."""
        if self._stands_on is None:
            return True
        number, known_checksum = self._stands_on
        return all(checksum(entry) == known_checksum for entry in page.entries if entry.sequence == number)

    def take(self, page: JournalPage) -> list[Range]:
        """Add the page after `after`, and return the ranges of its records after `upto`, in order."""
        ranges = self._ranges(page)
        for record_range in ranges:
            record_range.lose(page.lost)
        if page.last <= self.upto and page.last > self.after:
            self.after = page.last  # still reading again
        if page.last >= self.upto:
            self.upto = page.last
            self._stand_on(page.entries)
        return ranges

    def _ranges(self, page: JournalPage) -> list[Range]:
        already_counted, ranges = Rows(), [Range(self.upto, self.upto)]
        for entry in page.entries:
            if entry.sequence > self.upto:
                self._take(entry, _grown(ranges, entry.sequence).rows)
            else:
                self._take(entry, already_counted)
        ranges[-1].upto = max(self.upto, page.last)
        return [record_range for record_range in ranges if record_range.upto > record_range.after]

    def end(self, last: int) -> list[Range]:
        """Count the open requests as cut off once the boot has ended and its journal is read up to `last`.

        Each counts as one more record, so that a cut-off that was already reported is not reported again.
        """
        ranges = [Range(self.upto, self.upto)]
        for number, opened in enumerate(self._open.values(), last + 1):
            if number > self.upto:
                _grown(ranges, number).rows.cut_off(opened)
        self.upto = max(self.upto, last + len(self._open))
        self._open.clear()
        self.is_over = True
        return [record_range for record_range in ranges if record_range.upto > record_range.after]

    def _take(self, entry: Entry, rows: Rows) -> None:
        self._give_up(entry.sequence, rows)
        match entry.record:
            case Opened() as record:
                request = rows.opened(record)
                if record.kind != "pin":  # pin warm-ups have no end record
                    self._open[entry.sequence] = request
            case Closed() as record:
                if opened := self._open.pop(record.opened, None):
                    rows.closed(opened, record)

    def _give_up(self, number: int, rows: Rows) -> None:
        for _ in range(MOST_GIVEN_UP):
            if (oldest := next(iter(self._open), number)) >= number - MOST_BEHIND:
                return
            rows.cut_off(self._open.pop(oldest))

    def _stand_on(self, entries: Sequence[Entry]) -> None:
        if entries and entries[0].sequence == 1:
            self.born = checksum(entries[0])
        if entries and (self._stands_on is None or entries[-1].sequence > self._stands_on[0]):
            self._stands_on = (entries[-1].sequence, checksum(entries[-1]))
        self.after = self.upto if self._stands_on is None else self._stands_on[0] - 1


def checksum(entry: Entry) -> int:
    """Return the same checksum in every version, so that a reader recognises the journal after an upgrade."""
    return crc32(line_of(first_known(entry)))


# The reports


def usage_reports(
    boot: str, born: int | None, ranges: Sequence[Range], totals: Mapping[str, Any] | None
) -> list[Report]:
    """Return one independent report per range. The last includes the engine's own totals."""
    reports = [_report(boot, born, record_range, {}) for record_range in ranges[:-1]]
    return [*reports, *(_report(boot, born, record_range, totals or {}) for record_range in ranges[-1:])]


def _report(boot: str, born: int | None, record_range: Range, totals: Mapping[str, Any]) -> Report:
    position = {"boot": boot, "after": record_range.after, "born": born, "upto": record_range.upto}
    rows, keys = (
        [row_document(row) for row in record_range.rows],
        [key_row_told(row) for row in record_range.rows.by_key],
    )
    return Report("usage", {**position, "rows": rows, "totals": dict(totals), "lost": record_range.lost, "keys": keys})


def _grown(ranges: list[Range], number: int) -> Range:
    """Extend the last range to that record, or append a new range if it is full."""
    if ranges[-1].rows.is_full:
        ranges[-1].upto = number - 1
        ranges.append(Range(number - 1, number))
    ranges[-1].upto = number
    return ranges[-1]
