"""Requests that nobody sent, recorded as an engine would."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine_agent.contracts.protocol import CANARIES, snapshot_encode
from engine_agent.journal.records import Closed, Opened
from engine_agent.sidecar.folding import BootFold
from engine_agent.sidecar.holder import HolderRejected, JournalPage
from engine_agent.sidecar.simulate import _read, parser
from engine_agent.sidecar.simulated import SimulatedHolder
from tests.engines.snapshots import make_snapshot
from tests.unit.sidecar.journals import documents


class Site:
    """An engine of two namespaces, and a clock."""

    def __init__(self, traffic: float, **policies: Any) -> None:
        self.now = 0.0
        self.holder = SimulatedHolder("s", labels={}, traffic=traffic, clock=lambda: self.now)
        named = policies or {"one": {"ttl_seconds": 300, "kv_dtype": "fp8"}, "two": {"prefix_caching": False}}
        asyncio.run(self.holder.apply(snapshot_encode(make_snapshot(named))))
        asyncio.run(self.holder.journal())

    def page(self, after: int = 0, limit: int = 5_000) -> JournalPage:
        (boot,) = asyncio.run(self.holder.journal())
        return asyncio.run(self.holder.journal_page(boot.boot, after, limit))


def test_so_many_requests_come_a_second_and_all_of_them_end() -> None:
    site = Site(traffic=10)
    for _ in range(30):
        site.now += 1 / 3
        asyncio.run(site.holder.journal())
    entries = site.page().entries
    opened = [one.record for one in entries if isinstance(one.record, Opened)]
    assert len(opened) in (99, 100)
    assert len([one for one in entries if isinstance(one.record, Closed)]) == len(opened)
    assert {one.namespace for one in opened} == {"one", "two"}


def test_nobody_is_a_customer_of_the_canaries() -> None:
    """What a journal says of theirs the control plane refuses, unless it is a probe; simulated requests are none."""
    site = Site(traffic=100, one={"ttl_seconds": 300}, **{name: {"ttl_seconds": 300} for name in CANARIES})
    site.now += 1
    opened = [one.record for one in site.page().entries if isinstance(one.record, Opened)]
    assert len(opened) == 100
    assert {one.namespace for one in opened} == {"one"}


def test_hits_follow_from_the_policy_and_every_token_is_accounted_for() -> None:
    site = Site(traffic=100)
    site.now += 10
    opened = [one.record for one in site.page().entries if isinstance(one.record, Opened)]
    hits = {slug: [one.cached_tokens > 0 for one in opened if one.namespace == slug] for slug in ("one", "two")}
    assert not any(hits["two"])
    assert 0.7 < sum(hits["one"]) / len(hits["one"]) < 0.95
    assert all(one.cached_tokens + sum(one.missed.values()) == one.prompt_tokens for one in opened)


def test_its_own_count_is_what_its_journal_comes_to() -> None:
    site = Site(traffic=50)
    site.now += 4
    page = site.page()
    sums: dict[str, list[int]] = {}
    for row in (row for one in BootFold().take(page) for row in documents(list(one.rows))):
        found = sums.setdefault(row["namespace"], [0, 0, 0])
        names = ("requests", "prompt_tokens", "cached_tokens")
        sums[row["namespace"]] = [old + row["counts"].get(name, 0) for old, name in zip(found, names, strict=True)]
    assert sums == page.totals
    keys = [row.key for one in BootFold().take(page) for row in one.rows.by_key]
    assert set(keys) == {""}, "nobody sent these requests, with no key"
    assert asyncio.run(site.holder.levels()) is not None


def test_what_is_cut_is_gone_and_pages_follow_each_other() -> None:
    site = Site(traffic=10)
    site.now += 2
    (boot,) = asyncio.run(site.holder.journal())
    first = site.page(limit=7)
    assert (first.last, first.totals) == (7, None)
    assert site.page(after=7).entries[0].sequence == 8
    asyncio.run(site.holder.journal_cut(boot.boot, 5))
    assert site.page(limit=3).lost == [(1, 5)]
    with pytest.raises(HolderRejected):
        asyncio.run(site.holder.journal_page("another", 0, 1))


def test_without_traffic_it_counts_nothing() -> None:
    site = Site(traffic=0)
    site.now += 100
    assert asyncio.run(site.holder.journal()) == []
    assert asyncio.run(site.holder.levels()) is None


def test_traffic_is_an_option(tmp_path: Path) -> None:
    options = _read(parser().parse_args(["--join", "http://127.0.0.1:1", "--traffic", "2.5", "--home", str(tmp_path)]))
    assert options.traffic == 2.5
    for wrong in ("-1", "many", "nan", "100000"):
        with pytest.raises(SystemExit):
            parser().parse_args(["--traffic", wrong])
