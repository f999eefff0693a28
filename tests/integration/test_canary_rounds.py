"""Rounds of isolation probes at a real engine: what is isolated passes, what is not is found."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from aiohttp import web

from engine_agent.contracts.identity import HEADER
from engine_agent.gateway.canary.findings import LEAST_PAIRS, Findings
from engine_agent.gateway.canary.judging import Verdict
from engine_agent.gateway.canary.probing import Prober, canary_tenants
from engine_agent.gateway.looking import session_open
from engine_agent.gateway.tables import tables_empty, tables_read
from tests.engines.processes import Engine
from tests.fleet.canaries import canaries, same_key
from tests.gateway.snapshots import gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import Fleet, fleet

AGENT = "agent-1"


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    """One engine for all who leave it as it was."""
    with fleet(AGENT) as found:
        yield found


@pytest.fixture
def running() -> Iterator[Fleet]:
    with fleet(AGENT) as found:
        yield found


async def rounds(running: Fleet, count: int) -> list[Verdict]:
    tables = running.gateway.held.tables
    both = canary_tenants(tables)
    assert both is not None
    async with session_open() as session:
        prober = Prober(session, time.time)
        return [await prober.round(tables.engines[AGENT], both) for _ in range(count)]


async def test_tenants_that_are_kept_apart_are_found_so(shared: Fleet) -> None:
    shared.hold(who={**tenants(), **canaries()})
    found = await rounds(shared, 6)
    assert [one.outcome for one in found] == ["isolated"] * 6
    assert all(one.pair is not None for one in found)


async def test_two_tenants_in_one_namespace_are_found_at_the_first_round(shared: Fleet) -> None:
    shared.hold(who={**tenants(), **canaries()})
    tables = shared.gateway.held.tables
    both = canary_tenants(tables)
    assert both is not None
    async with session_open() as session:
        found = await Prober(session, time.time).round(tables.engines[AGENT], (both[0], both[0]))
    assert found.outcome == "leaked"
    assert "another organisation's prompt" in found.why


async def test_the_engine_keeps_namespaces_apart_even_where_somebody_gave_them_one_key(running: Fleet) -> None:
    running.hold(who={**tenants(), **canaries(same_key)})
    assert [one.outcome for one in await rounds(running, 2)] == ["isolated"] * 2


async def test_probes_are_counted_by_their_engine_and_in_no_customers_metrics(shared: Fleet) -> None:
    shared.hold(who={**tenants(), **canaries()})
    engine = shared.engines[AGENT]
    before = probes_in_journal(engine)
    await rounds(shared, 1)
    assert probes_in_journal(engine) == before + 4, "all four are in its journal, as what they are"
    told = [one for one in engine.ask("GET", "/metrics").body.decode().splitlines() if "canary" in one]
    assert not [one for one in told if "tokens" in one or "requests_total" in one], "memory it is, traffic it is not"


def probes_in_journal(engine: Engine) -> int:
    records = b"".join(one.read_bytes() for one in engine.state.rglob("*") if one.is_file() and "journal" in str(one))
    return records.count(b'"probe"')


async def test_an_engine_that_is_gone_gives_no_verdict(running: Fleet) -> None:
    running.hold(who={**tenants(), **canaries()})
    running.engines[AGENT].stop()
    (found,) = await rounds(running, 1)
    assert found.outcome == "failed"


async def test_without_the_tenants_nobody_probes(shared: Fleet) -> None:
    shared.hold()
    assert canary_tenants(shared.gateway.held.tables) is None


class Leaky:
    """Stands in for an engine that has one cache for everybody: a prompt that anybody sent is answered at once."""

    def __init__(self, *, is_honest: bool) -> None:
        self._is_honest, self._sent = is_honest, set[tuple[str, bytes]]()
        self._seen = set[bytes]()

    async def answer(self, request: web.Request) -> web.Response:
        body, whose = await request.read(), _namespace(request)
        is_own, is_cached = (whose, body) in self._sent, body in self._seen
        self._sent.add((whose, body))
        self._seen.add(body)
        await asyncio.sleep(0.001 if is_cached else 0.012)
        cached = 192 if (is_cached if self._is_honest else is_own) else 0
        return web.json_response({}, headers={"x-luminet-prompt-tokens": "200", "x-luminet-cached-tokens": str(cached)})


def _namespace(request: web.Request) -> str:
    payload = request.headers[HEADER].split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(payload + "==="))["namespace_id"])


async def leaky_rounds(count: int, *, is_honest: bool) -> list[Verdict]:
    snapshot = gateway_snapshot(tenants(), canaries(), route(AGENT))
    app = web.Application()
    app.router.add_post("/v1/completions", Leaky(is_honest=is_honest).answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    tables = tables_read(snapshot, tables_empty())
    both = canary_tenants(tables)
    assert both is not None
    try:
        async with session_open() as session:
            prober = Prober(session, time.time)
            return [await prober.round(replace(tables.engines[AGENT], address=address), both) for _ in range(count)]
    finally:
        await runner.cleanup()


async def test_an_engine_that_says_so_when_it_gives_away_anothers_cache_is_found() -> None:
    (found,) = await leaky_rounds(1, is_honest=True)
    assert found.outcome == "leaked"


async def test_an_engine_whose_times_alone_give_it_away_is_found_by_the_bound_of_the_interval() -> None:
    findings = Findings()
    for verdict in await leaky_rounds(LEAST_PAIRS, is_honest=False):
        assert verdict.outcome == "isolated", "by count there is nothing to see"
        findings.add(AGENT, verdict, 0.0)
    assert findings.take()[AGENT]["timing"]["low"] > 0.55
