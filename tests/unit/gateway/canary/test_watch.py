"""When a gateway probes: in its turns, and again in everybody's where it is alone."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from engine_agent.contracts.wire import Report
from engine_agent.gateway.canary import watch
from engine_agent.gateway.canary.judging import Verdict
from engine_agent.gateway.canary.probing import Tenant
from engine_agent.gateway.canary.watch import Canary
from engine_agent.gateway.held import Held
from engine_agent.gateway.tables import Engine, tables_read
from tests.fleet.canaries import canaries
from tests.gateway.snapshots import gateway_snapshot, route, tenants

SECONDS = 10.0
ENGINES = ("agent-1", "agent-2", "agent-3")
GATEWAYS = ("gateway-1", "gateway-2", "gateway-3")


class Probes:
    """Stands in for the prober, and for the time: a round takes none of it."""

    def __init__(self) -> None:
        self.now, self.asked = 1_000_000.0, list[tuple[str, float]]()

    async def round(self, engine: Engine, both: tuple[Tenant, Tenant]) -> Verdict:
        self.asked.append((engine.agent, self.now))
        return Verdict("isolated")

    def in_turns(self) -> Mapping[str, Counter[int]]:
        """Of each engine, how often it was probed in each turn."""
        return {agent: Counter(int(at // SECONDS) for one, at in self.asked if one == agent) for agent in ENGINES}


async def tell(reports: Sequence[Report]) -> None:
    raise AssertionError(f"nothing is told here: {reports}")


def held(*gateways: str) -> Held:
    doors: dict[str, Any] = {"doors/all": {"org": "fleet", "gateways": list(gateways)}} if gateways else {}
    snapshot = gateway_snapshot(tenants(), canaries(), *map(route, ENGINES), doors)
    found = Held()
    found.hold(tables_read(snapshot, found.tables))
    return found


def canary(probes: Probes, own: str, holds: Held, seconds: float = SECONDS) -> Canary:
    return Canary(holds, seconds=seconds, now=lambda: probes.now, tell=tell, may_tell=lambda: False, own=own)


async def watched(probes: Probes, canaries: Sequence[Canary], *, turns: int) -> None:
    for _ in range(int(turns * SECONDS / watch.LOOK_SECONDS)):
        for one in canaries:
            one._begin_due(probes, probes.now)  # type: ignore[arg-type]
        for _ in range(3):
            await asyncio.sleep(0)
        probes.now += watch.LOOK_SECONDS


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_each_engine_is_probed_once_in_every_turn_by_all_gateways_together(count: int) -> None:
    probes, names = Probes(), GATEWAYS[:count]
    told = names if count > 1 else ()
    await watched(probes, [canary(probes, name, held(*told)) for name in names], turns=42)
    first = int(1_000_000 // SECONDS)
    for agent, turns in probes.in_turns().items():
        # A moment at the very end of a turn is looked at when the next has begun.
        found = sum(turns[number] for number in range(first + 1, first + 41))
        assert 39 <= found <= 40, f"{agent} was probed {found} times in 40 turns"
        assert max(turns.values()) <= 2


async def test_a_gateway_that_is_alone_again_takes_all_turns() -> None:
    probes, holds = Probes(), held("gateway-1", "gateway-2")
    one = canary(probes, "gateway-1", holds)
    await watched(probes, [one], turns=20)
    shared = len(probes.asked)
    holds.hold(held().tables)
    await watched(probes, [one], turns=20)
    assert 3 * 8 <= shared <= 3 * 11
    assert 3 * 18 <= len(probes.asked) - shared <= 3 * 20


async def test_a_clock_that_was_set_back_keeps_no_engine_waiting() -> None:
    probes = Probes()
    one = canary(probes, "gateway-1", held())
    await watched(probes, [one], turns=3)
    probes.now -= 86_400
    before = len(probes.asked)
    await watched(probes, [one], turns=5)
    assert len(probes.asked) - before >= 3 * 3


async def test_a_clock_that_was_set_forward_has_each_engine_probed_once_and_not_for_every_turn_it_missed() -> None:
    probes = Probes()
    one = canary(probes, "gateway-1", held())
    await watched(probes, [one], turns=3)
    probes.now += 86_400
    before = len(probes.asked)
    await watched(probes, [one], turns=1)
    assert len(ENGINES) <= len(probes.asked) - before <= 2 * len(ENGINES)


async def test_without_a_rate_nobody_is_probed() -> None:
    probes = Probes()
    await watched(probes, [canary(probes, "gateway-1", held(), seconds=0)], turns=3)
    assert probes.asked == []


async def test_a_gateway_that_is_drained_probes_nobody() -> None:
    probes, holds = Probes(), held()
    holds.is_draining = True
    await watched(probes, [canary(probes, "gateway-1", holds)], turns=3)
    assert probes.asked == []
