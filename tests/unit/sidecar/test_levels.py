"""Levels and curves are told often enough, and never in piles."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_agent.contracts.wire import Batch, Report, ReportKind, batch_decode, batch_encode
from engine_agent.sidecar import levels
from engine_agent.sidecar.levels import GAPS_SECONDS, LEVELS_SECONDS, QUIET_LEVELS_SECONDS, LevelTeller

POOL = {"capacity_bytes": 100, "used_bytes": 50, "evictable_bytes": 10}
GONE = dict.fromkeys(("host_bytes", "expired_blocks", "evicted_blocks", "quota_blocks", "purged_blocks"), 0)


def level(resident_bytes: int, **gone: int) -> dict[str, int]:
    return {"resident_bytes": resident_bytes, **GONE, **gone}


@dataclass
class Site:
    boot: str = "b1"
    namespaces: dict[str, Any] = field(default_factory=lambda: {"12": level(7)})
    curves: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)  # than an engine of before says
    holds: bool = True
    traffic: "OrderedDict[str, None]" = field(default_factory=OrderedDict)
    reports: list[Report] = field(default_factory=list)
    is_waiting: bool = False
    asked: list[Sequence[str]] = field(default_factory=list)
    teller: LevelTeller = field(init=False)

    def __post_init__(self) -> None:
        self.teller = LevelTeller(
            self,  # type: ignore[arg-type]
            tell=self._tell,
            waiting=self._waiting,
            traffic=self.traffic,
            at=lambda: 5.0,
        )

    def look(self, now: float, *, is_busy: bool = False) -> list[Report]:
        before = len(self.reports)
        asyncio.run(self.teller.look(now, is_busy=is_busy))
        return self.reports[before:]

    def _waiting(self, kind: ReportKind) -> int:
        return int(self.is_waiting)

    async def _tell(self, reports: Sequence[Report]) -> None:
        self.reports += reports

    # As a holder

    async def levels(self) -> Mapping[str, Any] | None:
        told = {"boot": self.boot, "pool": POOL, "preemptions": 0, "namespaces": dict(self.namespaces), **self.more}
        return told if self.holds else None

    async def gaps(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        self.asked.append(list(namespaces))
        return {"boot": self.boot, "namespaces": {one: self.curves[one] for one in namespaces if one in self.curves}}


def test_levels_are_told_every_ten_seconds_while_requests_come_and_else_every_minute() -> None:
    site = Site()
    (report,) = site.look(0.0)
    assert report.told["namespaces"] == {"12": level(7)}
    assert report.told["at"] == 5.0
    assert batch_decode(batch_encode(Batch(0.0, "s", 1, [report], None))).reports == [report]
    assert site.look(LEVELS_SECONDS) == []
    assert len(site.look(LEVELS_SECONDS, is_busy=True)) == 1
    assert site.look(LEVELS_SECONDS + QUIET_LEVELS_SECONDS - 1) == []
    assert len(site.look(LEVELS_SECONDS + QUIET_LEVELS_SECONDS)) == 1


def test_while_one_waits_no_other_is_told() -> None:
    site = Site(is_waiting=True, traffic=OrderedDict({"12": None}), curves={"12": {}})
    assert site.look(0.0) == []
    site.is_waiting = False
    assert [one.kind for one in site.look(1.0)] == ["levels", "gaps"]


def test_what_holds_nothing_tells_nothing() -> None:
    assert Site(holds=False).look(0.0) == []


def test_who_holds_nothing_and_lost_nothing_since_is_not_named_again() -> None:
    site = Site(namespaces={"12": level(0, evicted_blocks=3), "13": level(5)})
    assert set(site.look(0.0)[0].told["namespaces"]) == {"12", "13"}
    assert set(site.look(100.0)[0].told["namespaces"]) == {"13"}
    site.namespaces["12"] = level(0, evicted_blocks=4)
    assert set(site.look(200.0)[0].told["namespaces"]) == {"12", "13"}
    site.boot = "b2"
    assert set(site.look(300.0)[0].told["namespaces"]) == {"12", "13"}


def test_of_too_many_those_are_named_that_hold_most(monkeypatch: Any) -> None:
    monkeypatch.setattr(levels, "MOST_LEVELS", 2)
    site = Site(namespaces={str(size): level(size) for size in (3, 1, 2)})
    assert set(site.look(0.0)[0].told["namespaces"]) == {"3", "2"}


def test_curves_are_told_of_those_with_new_traffic_alone() -> None:
    site = Site(traffic=OrderedDict({"12": None, "13": None}), curves={"12": {"ttls": [1]}})
    (report,) = [one for one in site.look(0.0) if one.kind == "gaps"]
    assert report.told == {"boot": "b1", "at": 5.0, "namespaces": {"12": {"ttls": [1]}}}
    assert not site.traffic
    site.look(GAPS_SECONDS)
    assert site.asked == [["12", "13"]]
    site.traffic["13"] = None
    assert [one for one in site.look(GAPS_SECONDS + 1) if one.kind == "gaps"] == [], "there is nothing to say of it"
    assert site.asked == [["12", "13"], ["13"]]


def test_curves_of_many_come_in_small_reports_and_a_few_namespaces_at_a_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(levels, "MOST_GAPS_BYTES", 1_000)
    names = [str(number) for number in range(levels.MOST_NAMESPACES + 1)]
    site = Site(traffic=OrderedDict.fromkeys(names), curves={key: {"ttls": ["x" * 500]} for key in names})
    told = [one for one in site.look(0.0) if one.kind == "gaps"]
    assert all(len(one.told["namespaces"]) == 1 for one in told)
    assert [name for one in told for name in one.told["namespaces"]] == names[:-1]
    assert max(map(len, site.asked)) == levels.ASKED_AT_ONCE
    assert list(site.traffic) == names[-1:]
