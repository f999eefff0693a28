"""Journals for tests of what is made of them: random histories, a holder of them, and a count by brute force."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from controlplane.analytics.rows import judge
from controlplane.analytics.tally import Read, Tally
from engine_agent.contracts.usage import Row, row_document, time_code
from engine_agent.contracts.wire import Batch, Report
from engine_agent.journal.records import Closed, Entry, Opened, Record
from engine_agent.sidecar.holder import HolderAway, HolderRejected, JournalBoot, JournalPage
from tests.engines.journals import CLOSED, OPENED

AT = 1_790_000_000.0  # in the middle of a minute
Sums = Mapping[tuple[Any, ...], Any]


def opened(at: float = AT, **fields: Any) -> Opened:
    return Opened(**{**{name: getattr(OPENED, name) for name in OPENED.__slots__}, "at": at, **fields})


def closed(number: int, **fields: Any) -> Closed:
    return Closed(**{**{name: getattr(CLOSED, name) for name in CLOSED.__slots__}, "opened": number, **fields})


@st.composite
def records(draw: st.DrawFn, most: int = 30) -> list[Record]:
    """What one boot wrote: requests of a few namespaces that end late, early or never."""
    found: list[Record] = []
    unended: list[int] = []
    for number in range(draw(st.integers(0, most))):
        is_an_end = draw(st.booleans())
        if unended and is_an_end:
            place = draw(st.integers(0, len(unended) - 1))
            found.append(_end(draw, unended.pop(place)))
            continue
        kind = draw(st.sampled_from(["customer", "customer", "probe", "pin"]))
        found.append(_begin(draw, kind, number))
        if kind != "pin":
            unended.append(len(found))
    return found


def _begin(draw: st.DrawFn, kind: Any, number: int) -> Opened:
    prompt = draw(st.integers(1, 5_000))
    cached = draw(st.integers(0, prompt))
    return opened(
        AT + draw(st.integers(-3_700, 3_700)),  # as when a clock is set
        kind=kind,
        request_id=f"r-{number}",
        attempt=draw(st.integers(1, 2)),
        namespace_id=draw(st.sampled_from(["12", "13"])),
        key_id=draw(st.sampled_from(["", "key-1", "key-2"])),
        kv_dtype=draw(st.sampled_from(["fp8", "int4"])),
        prompt_tokens=prompt,
        cached_tokens=cached,
        missed={"cold": prompt - cached} if cached < prompt else {},
    )


def _end(draw: st.DrawFn, number: int) -> Closed:
    return closed(
        number,
        outcome=draw(st.sampled_from(["stop", "length", "cancelled", "deadline", "error"])),
        generated_tokens=draw(st.integers(0, 50)),
        ttft_ms=draw(st.none() | st.floats(0, 1e5)),
        duration_ms=draw(st.floats(0, 1e6)),
    )


def recounted(boots: Sequence[Sequence[Record]], *, over: Sequence[bool]) -> Counter[tuple[Any, ...]]:
    """All there is to count, by minute and namespace and so on, counted one by one."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for records_, is_over in zip(boots, over, strict=True):
        ends = {one.opened: one for one in records_ if isinstance(one, Closed)}
        for number, one in enumerate(records_, 1):
            if isinstance(one, Opened):
                sums.update(_worth(one, ends.get(number), is_over=is_over))
    return +sums


def _worth(one: Opened, end: Closed | None, *, is_over: bool) -> Counter[tuple[Any, ...]]:
    key = (int(one.at) - int(one.at) % 60, "7", one.namespace_id, one.model, one.kv_dtype, one.kind)
    missed = {("missed", reason): count for reason, count in one.missed.items()}
    told: dict[Any, int] = {"requests": 1, "prompt_tokens": one.prompt_tokens, "cached_tokens": one.cached_tokens}
    told |= {"retried": int(one.attempt == 2)} | missed
    if end is None:
        told["cut_off"] = int(is_over and one.kind != "pin")
    else:
        told["generated_tokens"] = end.generated_tokens
        told["cancelled"], told["failed"] = int(end.outcome == "cancelled"), int(end.outcome in ("deadline", "error"))
        about = {"prompt_tokens": one.prompt_tokens, "cached_tokens": one.cached_tokens}
        times = [time_code("duration", milliseconds=end.duration_ms, **about)]
        times += [time_code("ttft", milliseconds=end.ttft_ms, **about)] if end.ttft_ms is not None else []
        told |= {("times", code): count for code, count in Counter(times).items()}
    return Counter({(*key, name): count for name, count in told.items()})


def summed(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What rows as they are told come to."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        key = tuple(row[name] for name in ("minute", "organisation", "namespace", "model", "kv_dtype", "kind"))
        told = [*row["counts"].items(), *((("missed", name), count) for name, count in row["missed"].items())]
        told += [(("times", code), count) for code, count in row["times"]]
        sums.update({(*key, name): count for name, count in told})
    return +sums


def documents(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [row_document(row) for row in rows]


def told_rows(reports: Sequence[Report]) -> list[Mapping[str, Any]]:
    return [row for one in reports if one.kind == "usage" for row in one.told["rows"]]


class Died(BaseException):
    """Kill -9, in the middle of whatever was being done."""


@dataclass
class JournalHolder:
    """Keeps journals as an engine does. `dies` is asked before and after each deed."""

    boots: dict[str, list[Record]] = field(default_factory=dict)
    current: str = ""
    cut_upto: dict[str, int] = field(default_factory=dict)
    damaged: set[tuple[str, int]] = field(default_factory=set)
    dies: Callable[[], bool] = lambda: False
    is_away: bool = False
    most_of_a_page: int = 5_000
    size_bytes: int = 0
    pages: int = 0

    def _deed(self) -> None:
        if self.is_away:
            raise HolderAway("it does not answer")
        if self.dies():
            raise Died

    async def journal(self) -> list[JournalBoot]:
        self._deed()
        return [
            JournalBoot(boot, len(records_), self.size_bytes, boot == self.current)
            for boot, records_ in self.boots.items()
            if records_
        ]

    async def journal_page(self, boot: str, after: int, limit: int) -> JournalPage:
        self._deed()
        self.pages += 1
        if boot not in self.boots:
            raise HolderRejected("no record of that boot is here")
        numbered = [Entry(number, one) for number, one in enumerate(self.boots[boot], 1)]
        first = max(after, self.cut_upto.get(boot, 0))
        sound = [one for one in numbered[first:] if (boot, one.sequence) not in self.damaged]
        entries = sound[: min(limit, self.most_of_a_page)]
        last = entries[-1].sequence if len(entries) < len(sound) else max(len(numbered), after)
        there = {one.sequence for one in entries}
        lost = [(number, number) for number in range(after + 1, last + 1) if number not in there]
        totals = self._totals(boot, last) if boot == self.current and last == len(numbered) else None
        self._deed()
        return JournalPage(last, entries, lost, totals)

    def _totals(self, boot: str, upto: int) -> dict[str, list[int]]:
        sums: dict[str, list[int]] = {}
        for one in self.boots[boot][:upto]:
            if isinstance(one, Opened):
                found = sums.setdefault(one.namespace_id, [0, 0, 0])
                sums[one.namespace_id] = [
                    found[0] + 1, found[1] + one.prompt_tokens, found[2] + one.cached_tokens
                ]  # fmt: skip
        return sums

    async def journal_cut(self, boot: str, upto: int) -> None:
        self._deed()
        if boot not in self.boots or upto > len(self.boots[boot]):
            raise HolderRejected("behind its last record")
        self.cut_upto[boot] = max(upto, self.cut_upto.get(boot, 0))
        if boot != self.current and upto == len(self.boots[boot]):
            del self.boots[boot]
        self._deed()


@dataclass
class Plane:
    """A control plane's side: spools' numbers, and the rule by which ranges of journals count."""

    upto: dict[str, int] = field(default_factory=dict)  # by spool
    reads: dict[tuple[str, str], Read] = field(default_factory=dict)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    lost: int = 0

    def take(self, batch: Batch) -> tuple[int, Mapping[str, int]]:
        """What its answer says: acknowledged, and journal."""
        tally = Tally(judge(datetime.fromtimestamp(AT, UTC), {}), datetime.fromtimestamp(AT, UTC), reads=self.reads)
        for number, report in enumerate(batch.reports, batch.first):
            before = dict(tally.read)
            tally.take("agent", number, Report("usage", {**report.told, "rows": []}))
            if tally.read != before:
                self.rows += report.told["rows"]
                self.lost += report.told["lost"]
        self.reads = {**self.reads, **tally.read}
        known = self.upto.get(batch.spool, 0)
        if batch.reports:
            self.upto[batch.spool] = known = max(batch.first + len(batch.reports) - 1, known)
        return known, tally.stands.get("agent", {})
