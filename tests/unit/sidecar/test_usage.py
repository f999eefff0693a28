"""Reading the journal: each record is told once, whatever dies between any two steps."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_agent.contracts.wire import Report
from engine_agent.journal.records import Record
from engine_agent.sidecar import usage
from engine_agent.sidecar.holder import HolderAway
from engine_agent.sidecar.spool import Spool
from engine_agent.sidecar.usage import MARK, UsageReader
from tests.unit.sidecar.journals import (
    AT,
    Died,
    JournalHolder,
    Plane,
    closed,
    opened,
    records,
    recounted,
    summed,
    told_rows,
)


@dataclass
class Disk:
    """What is left of a spool when its process is gone."""

    content: bytes = b""

    def read(self) -> bytes:
        return self.content

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        self.content += line

    def replace(self, content: bytes) -> None:
        self.content = content


@dataclass
class Site:
    """A holder, and one process after another that reads its journal. Reports are acknowledged by a Plane alone."""

    holder: JournalHolder = field(default_factory=JournalHolder)
    disk: Disk = field(default_factory=Disk)
    dies: Callable[[], bool] = lambda: False
    may_tell: bool = True
    has_plane: bool = False
    spool: Spool = field(init=False)
    reader: UsageReader = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.spool = Spool(self.disk)
        self.reader = UsageReader(
            self.holder,  # type: ignore[arg-type]
            self.spool.marks.get(MARK),
            tell=self._tell,
            may_tell=lambda: self.may_tell,
            waits=lambda: self.has_plane and self.spool.waiting("usage") > 0,
        )

    async def _tell(self, reports: Sequence[Report], marks: Mapping[str, Any]) -> None:
        if self.dies():
            raise Died
        self.spool.tell(reports, None, marks)
        if self.dies():
            raise Died

    def look(self) -> None:
        try:
            asyncio.run(self.reader.look())
        except Died:
            self.start()

    def send(self, plane: Plane, *, is_heard: bool = True) -> None:
        """As Reporter does."""
        batch = self.spool.batch(sent_at=0.0, heartbeat=None, most=3)
        acknowledged, journal = plane.take(batch)
        if is_heard:
            for boot, upto in journal.items():
                asyncio.run(self.reader.stand(boot, upto))
            self.spool.acknowledge(acknowledged)

    def settle(self, plane: Plane) -> None:
        """No more faults: until nothing is left to be told."""
        for _ in range(30):
            self.look()
            self.send(plane)
        assert len(self.spool) == 0

    @property
    def reports(self) -> list[Report]:
        found, upto = list[Report](), 0
        again = Spool(Disk(self.disk.content))
        while batch := again.batch(sent_at=0.0, heartbeat=None).reports:
            found += batch
            upto += len(batch)
            again.acknowledge(upto)
        return found

    @property
    def told(self) -> Any:
        return summed(told_rows(self.reports))


@settings(max_examples=150)
@given(st.lists(records(most=12), min_size=1, max_size=3), st.data())
def test_whatever_dies_between_any_two_steps_each_record_is_told_once(
    boots: list[list[Record]], data: st.DataObject
) -> None:
    dice = data.draw(st.randoms(use_true_random=False))
    dies = lambda: dice.random() < 0.15  # noqa: E731
    site = Site(JournalHolder(dies=dies, most_of_a_page=data.draw(st.integers(2, 6))), dies=dies)
    for number, all_of in enumerate(boots):
        site.holder.current = f"boot-{number}"
        site.holder.boots[site.holder.current] = kept = []
        for one in all_of:
            kept.append(one)
            if dice.random() < 0.4:
                site.look()
    for part in (site, site.holder):
        part.dies = lambda: False
    for _ in range(4):
        site.look()
    assert site.told == recounted(boots, over=[number < len(boots) - 1 for number in range(len(boots))])
    left = {boot for boot, records_ in site.holder.boots.items() if records_}
    assert left <= {site.holder.current}, "those that are over are cut"


def one_boot(*all_of: Record) -> Site:
    return Site(JournalHolder({"b1": list(all_of)}, current="b1"))


def test_it_is_told_with_the_engines_own_count_and_how_far_it_is_read() -> None:
    site = one_boot(opened(), closed(1), opened())
    site.look()
    (report,) = site.reports
    assert (report.kind, report.told["boot"], report.told["upto"], report.told["lost"]) == ("usage", "b1", 3, 0)
    assert report.told["totals"] == {"12": [2, 1024, 992]}
    site.look()
    assert len(site.reports) == 1, "and nothing while nothing happens"


def test_a_journal_is_cut_up_to_what_nobody_needs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "CUT_RECORDS", 1)
    site = one_boot(opened(), closed(1), opened(), opened(), closed(4))
    site.look()
    assert site.holder.cut_upto == {"b1": 2}, "the third is open"
    site.holder.boots["b1"].append(closed(3))
    site.look()
    assert site.holder.cut_upto == {"b1": 5}, "the last shows whose journal it is"


def test_while_nobody_takes_reports_the_journal_waits_until_it_is_too_large() -> None:
    site = one_boot(opened())
    site.may_tell = False
    site.look()
    assert site.reports == []
    site.holder.size_bytes = usage.PRESSING_BYTES + 1
    site.look()
    assert len(site.reports) == 1


def test_an_engine_that_is_away_costs_nothing() -> None:
    site = one_boot(opened())
    site.holder.is_away = True
    with pytest.raises(HolderAway):
        site.look()
    site.holder.is_away = False
    site.look()
    assert site.told == recounted([[opened()]], over=[False])


def test_what_can_no_longer_be_read_is_said_once() -> None:
    site = one_boot(opened(), opened(), opened(), closed(1))
    site.holder.damaged = {("b1", 2), ("b1", 3)}
    site.look()
    site.start()
    site.holder.boots["b1"].append(opened(AT + 60))
    site.look()
    assert [one.told["lost"] for one in site.reports] == [2, 0]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_boot_that_comes_again_with_another_journal_is_read_from_its_beginning(restarts: bool, length: int) -> None:
    before: list[Record] = [opened(request_id="before"), opened(request_id="before"), closed(1)]
    after: list[Record] = [opened(request_id=f"after-{number}") for number in range(length)]
    site = one_boot(*before)
    site.look()
    site.holder.boots["b1"] = after
    if restarts:
        site.start()
    for _ in range(2):
        site.look()
    assert site.told == recounted([before], over=[False]) + recounted([after], over=[False])


def test_a_boot_whose_last_records_went_with_the_power_is_not_told_again() -> None:
    all_of = [opened(request_id="r-1"), opened(request_id="r-2"), opened(request_id="r-3")]
    site = one_boot(*all_of)
    site.look()
    site.holder.boots = {"b1": list(all_of[:2]), "b2": [opened(request_id="r-4")]}
    site.holder.current = "b2"
    site.start()
    site.look()
    requests = sum(count for key, count in site.told.items() if key[-1] == "requests")
    assert requests == 4
    assert "b1" not in site.holder.boots


def test_a_write_that_fails_in_a_way_that_nobody_thought_of_loses_nothing() -> None:
    site = one_boot(opened(), closed(1))
    spool, site.spool = site.spool, None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        site.look()
    site.spool = spool
    site.look()
    assert site.told == recounted([[opened(), closed(1)]], over=[False])


def test_it_knows_of_whom_there_was_traffic() -> None:
    site = one_boot(opened(namespace_id="12"), opened(namespace_id="13", kind="probe"))
    site.look()
    assert list(site.reader.traffic) == ["12"]
    assert site.reader.is_busy
    site.look()
    assert not site.reader.is_busy


# What the control plane counts, whatever becomes of a home


def sites(*all_of: Record) -> tuple[Site, Plane]:
    site = one_boot(*all_of)
    site.has_plane = True
    return site, Plane()


def many(first: int, last: int) -> list[Record]:
    return [opened(request_id=f"r-{number}") for number in range(first, last + 1)]


def test_a_home_brought_back_from_a_copy_tells_nothing_twice() -> None:
    site, plane = sites(*many(1, 2))
    site.settle(plane)
    copy = site.disk.content
    site.holder.boots["b1"] += many(3, 4)
    site.settle(plane)
    site.disk.content = copy
    site.start()
    site.holder.boots["b1"] += many(5, 6)
    site.settle(plane)
    assert summed(plane.rows) == recounted([many(1, 6)], over=[False])


def test_a_spool_whose_head_is_damaged_tells_nothing_twice_and_loses_nothing() -> None:
    site, plane = sites(*many(1, 3))
    site.look()
    site.send(plane, is_heard=False)
    site.disk.content = b"x" + site.disk.content[1:]
    site.start()
    site.holder.boots["b1"] += many(4, 5)
    site.settle(plane)
    assert summed(plane.rows) == recounted([many(1, 5)], over=[False])


def test_a_lost_spool_tells_what_was_not_counted_of_a_boot_that_is_over() -> None:
    site, plane = sites(*many(1, 3))
    site.settle(plane)
    site.holder.boots["b1"] += many(4, 5)
    site.holder.current = "b2"
    site.look()
    site.disk.content = b""
    site.start()
    site.settle(plane)
    assert summed(plane.rows) == recounted([many(1, 5)], over=[True])
    assert "b1" not in site.holder.boots, "and then it is cut"


def test_two_homes_of_one_copy_tell_each_record_once() -> None:
    site, plane = sites(*many(1, 2))
    site.settle(plane)
    other = Site(site.holder, Disk(site.disk.content), has_plane=True)
    for number in range(3, 30, 3):
        site.holder.boots["b1"] += many(number, number)
        site.look()
        site.holder.boots["b1"] += many(number + 1, number + 2)
        other.look()
        for one in (other, site):
            one.send(plane)
    site.settle(plane)
    other.settle(plane)
    assert summed(plane.rows) == recounted([site.holder.boots["b1"]], over=[False])


def test_a_boot_that_is_not_listed_for_a_while_is_not_told_again() -> None:
    site, plane = sites(*many(1, 3))
    site.settle(plane)
    kept, site.holder.boots = site.holder.boots, {}
    site.look()
    site.holder.boots = kept
    kept["b1"] += many(4, 4)
    site.settle(plane)
    assert summed(plane.rows) == recounted([many(1, 4)], over=[False])


def test_a_boot_id_used_again_is_another_journal() -> None:
    site, plane = sites(*many(1, 3))
    site.settle(plane)
    site.holder.boots["b1"] = list(many(11, 12))
    site.disk.content = b""
    site.start()
    site.settle(plane)
    assert summed(plane.rows) == recounted([[*many(1, 3), *many(11, 12)]], over=[False])


def test_a_control_plane_brought_back_from_a_copy_hears_again_what_engines_still_keep() -> None:
    site, plane = sites(*many(1, 2))
    site.settle(plane)
    copy = Plane(dict(plane.upto), dict(plane.reads), list(plane.rows))
    site.holder.boots["b1"] += many(3, 4)
    site.settle(plane)
    site.holder.boots["b1"] += many(5, 5)
    site.settle(copy)
    assert summed(copy.rows) == recounted([many(1, 5)], over=[False])


@settings(max_examples=150, deadline=None)
@given(st.lists(records(most=12), min_size=1, max_size=3), st.data())
def test_whatever_becomes_of_homes_and_answers_each_record_is_counted_once(
    boots: list[list[Record]], data: st.DataObject
) -> None:
    dice = data.draw(st.randoms(use_true_random=False))
    dies = lambda: dice.random() < 0.05  # noqa: E731
    holder = JournalHolder(dies=dies, most_of_a_page=data.draw(st.integers(2, 6)))
    site, plane, copy = Site(holder, dies=dies, has_plane=True), Plane(), b""
    for number, all_of in enumerate(boots):
        holder.current = f"boot-{number}"
        holder.boots[holder.current] = kept = []
        for one in all_of:
            kept.append(one)
            copy = _befallen(site, plane, dice, copy)
    for part in (site, holder):
        part.dies = lambda: False
    site.settle(plane)
    assert summed(plane.rows) == recounted(boots, over=[number < len(boots) - 1 for number in range(len(boots))])
    assert plane.lost == 0


def _befallen(site: Site, plane: Plane, dice: Any, copy: bytes) -> bytes:
    """What happens to it; the copy of its home that there is then."""
    what = dice.choice(["look", "look", "look", "send", "send", "unheard", "copy", "back", "damage", "none"])
    if what == "look":
        site.look()
    elif what in ("send", "unheard"):
        with suppress(Died):
            site.send(plane, is_heard=what == "send")
    elif what == "copy":
        return site.disk.content
    elif what in ("back", "damage"):
        site.disk.content = copy if what == "back" else b"x" + site.disk.content[1:]
        site.start()
    return copy
