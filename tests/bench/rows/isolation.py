"""S1: whether one organisation can tell by time that another's prompt is cached, on a real engine behind the canary."""

import asyncio
import time
from collections.abc import Sequence

from engine_agent.gateway.canary.judging import Round
from engine_agent.gateway.canary.probing import Prober, Tenant, canary_tenants
from engine_agent.gateway.canary.statistic import interval_of
from engine_agent.gateway.looking import session_open
from engine_agent.gateway.tables import Engine, tables_empty, tables_read
from tests.bench import Bench, Target, row
from tests.bench.figures import Parameters
from tests.fleet.canaries import canaries
from tests.gateway.snapshots import engine_snapshot, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import fleet_engine, told_as

PAIRS = 320
WARMING = 10
AGENT = "agent-1"
Pairs = Sequence[tuple[float, float]]


@row(
    "S1",
    title="Timing probe: can one organisation tell that another's prompt is cached",
    target="interval holds 0.5, width ≤ 0.1",
    beside="two tenants in one namespace, as without a salt, alternating",
)
def timing(bench: Bench) -> None:
    who = {**tenants(), **canaries()}
    with fleet_engine(AGENT) as engine:
        assert engine.admin("POST", "/apply", told_as(engine_snapshot(who))).status == 200
        address = route(AGENT, f"http://127.0.0.1:{engine.port}")
        tables = tables_read(gateway_snapshot(who, address), tables_empty())
        both = canary_tenants(tables)
        assert both is not None
        apart, together = asyncio.run(_measured(bench, tables.engines[AGENT], both))
    _record(bench, "namespaces apart", apart, Target("<=", 0.1))
    _record(bench, "one namespace for both (control)", together, None)


async def _measured(bench: Bench, engine: Engine, both: tuple[Tenant, Tenant]) -> tuple[Pairs, Pairs]:
    count = bench.repetitions(PAIRS)
    async with session_open() as session:
        prober = Prober(session, time.time)
        for _ in range(WARMING):
            await prober.seen(engine, both)
        apart, together = list[Round](), list[Round]()
        for number in range(count):
            bench.step("rounds", number + 1, count)
            apart.append(await prober.seen(engine, both))
            together.append(await prober.seen(engine, (both[0], both[0])))
    assert not any(one.foreign.cached_tokens for one in apart), "a tenant found another's prompt"
    assert all(one.foreign.cached_tokens for one in together), "the control's prompt was not cached"
    return _pairs(apart), _pairs(together)


def _pairs(rounds: Sequence[Round]) -> Pairs:
    return [(one.foreign.milliseconds, one.unseen.milliseconds) for one in rounds]


def _record(bench: Bench, what: str, pairs: Pairs, width: Target | None) -> None:
    cached, fresh = zip(*pairs, strict=True)
    found = interval_of(cached, fresh)
    told: Parameters = {"pairs": len(pairs), "low, 95 %": round(found.low, 3), "high, 95 %": round(found.high, 3)}
    bench.record(f"ROC AUC, {what}", unit="", values=[found.auc], parameters=told)
    bench.record(f"width of its interval, {what}", unit="", values=[found.width], target=width)
    if width is not None:
        held = [float(found.holds_nothing)]
        bench.record(f"interval holds 0.5, {what}", unit="", values=held, target=Target("==", 1))
    bench.record(f"cached elsewhere, {what}", unit="ms", values=list(cached))
    bench.record(f"cached nowhere, {what}", unit="ms", values=list(fresh))
