"""Records are dated by the fleet's clock, and a page of the journal ends with the engine's own count of just that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import httpx
import pytest

from engine_agent.engine.outputs import Admission
from engine_agent.journal.journal import Journal, Opened
from engine_agent.server.admin import AdminFace
from engine_agent.server.app import openai_app
from engine_agent.server.counters import EngineTotals
from engine_agent.server.fleet_clock import FleetClock
from engine_agent.server.guard import KeyGuard
from engine_agent.server.metrics import Observer
from engine_agent.server.warmups import WarmUps
from tests.unit.server.asking import Asker
from tests.unit.server.conftest import LIMITS
from tests.unit.server.identities import KEY, LOCAL
from tests.unit.server.reading import records
from tests.unit.server.scripted import ByteText, PlainTemplate, ScriptedBackend
from tests.unit.sidecar.journals import opened


@pytest.mark.parametrize("jump", [-3_600.0, 3_600.0])
async def test_no_jump_of_a_wall_clock_moves_a_record(backend: ScriptedBackend, journal: Journal, jump: float) -> None:
    wall = [5_000.0]
    clock = FleetClock(steady=lambda: 100.0, wall=lambda: wall[0])
    clock.set(600.0)
    wall[0] += jump
    guard = KeyGuard(sha256(KEY.encode()).digest(), LOCAL)
    app = openai_app(backend, ByteText(), PlainTemplate(), journal, guard, agent_id="a", limits=LIMITS, clock=clock)
    await Asker(app, {"authorization": f"Bearer {KEY}"}).complete(prompt="x")
    assert [one.at for one in records(journal)] == [5_600.0, 5_600.0]


async def test_a_warm_up_is_dated_alike_and_counted(backend: ScriptedBackend, journal: Journal) -> None:
    names = {"organisation": "7", "organisation_slug": "acme", "namespace": "12", "namespace_slug": "prod"}
    backend.stats_told = {"namespaces": [names]}
    totals = EngineTotals()
    warm = WarmUps(backend, journal, totals, lambda: 7.0)
    warm.admitted("pin", "12", Admission(64, 0, "fp8", 1, "cold", {"cold": 64}, "7"))
    for writing in set(warm._writing):
        await writing
    (record,) = records(journal)
    assert (record.at, record.kind, totals.since(0)) == (7.0, "pin", {"12": [1, 64, 0]})


@asynccontextmanager
async def admin_face(backend: ScriptedBackend, journal: Journal, totals: EngineTotals) -> AsyncIterator[Any]:
    face = AdminFace(backend, journal, agent_id="a", tokenizer=ByteText(), template=None, totals=totals)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(face.app()), base_url="http://engine") as client:

        async def page(query: str) -> Any:
            return (await client.get(f"/journal?{query}")).json()

        yield page


async def test_a_page_that_reaches_the_end_has_the_engines_own_count(
    backend: ScriptedBackend, journal: Journal
) -> None:
    totals = Observer("tiny").totals
    for namespace in ("12", "13", "12"):
        record = opened(namespace_id=namespace)
        totals.opened(record, journal.opened(record))
    async with admin_face(backend, journal, totals) as page:
        assert (await page("since=0"))["totals"] == {"12": [2, 1024, 992], "13": [1, 512, 496]}
        assert (await page("since=2"))["totals"] == {"12": [2, 1024, 992]}
        assert (await page("since=3"))["totals"] == {}
        assert (await page("since=0&limit=2"))["totals"] is None
        assert (await page("since=1&limit=2"))["totals"] is not None


async def test_what_is_written_while_a_page_is_read_is_in_neither(
    backend: ScriptedBackend, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals, since = EngineTotals(), journal.since

    def write(record: Opened) -> None:
        totals.opened(record, journal.opened(record))

    def read(*arguments: Any, **named: Any) -> Any:
        write(opened())
        return since(*arguments, **named)

    write(opened())
    monkeypatch.setattr(journal, "since", read)
    async with admin_face(backend, journal, totals) as page:
        found = await page("since=0")
    assert (found["last"], len(found["entries"]), found["totals"]) == (1, 1, {"12": [1, 512, 496]})
    assert journal.last == 2
