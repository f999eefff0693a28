"""Probes the isolation of every engine at a low rate, all the time, and reports the results to the control plane.

Engines are probed independently, each with one round at a time. Several gateways take turns (`turns.py`). While the
control plane does not answer, results accumulate here.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

import aiohttp
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine_agent.contracts.wire import Report
from engine_agent.gateway.canary.findings import Findings
from engine_agent.gateway.canary.judging import Verdict
from engine_agent.gateway.canary.probing import Prober, Tenant, canary_tenants
from engine_agent.gateway.canary.turns import Turns
from engine_agent.gateway.held import Held
from engine_agent.gateway.tables import Engine

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
TELL_SECONDS = 10.0
_AUC_ABOUT = (
    "end of the 99.9 % interval of how well one tenant can tell by time that another's prompt is cached; 0.5: not."
)
Tell = Callable[[Sequence[Report]], Awaitable[None]]


class Canary:
    """`seconds`: between two rounds at an engine, by all gateways together; 0: never. `own`: this gateway."""

    def __init__(
        self,
        state: Held,
        *,
        seconds: float,
        now: Callable[[], float],
        tell: Tell,
        may_tell: Callable[[], bool],
        own: str = "",
    ) -> None:
        self._held, self._seconds, self._now, self._own = state, seconds, now, own
        self._tell, self._may_tell = tell, may_tell
        self.findings = Findings()
        self._turns: Turns | None = None
        self._due: dict[str, float] = {}  # when each engine is probed next, by the fleet's clock
        self._rounds: dict[str, asyncio.Task[None]] = {}
        self.registry = CollectorRegistry()
        self._counted = Counter(
            "luminet_canary_rounds",
            "Rounds of isolation probes, by what they said.",
            ("agent", "outcome"),
            registry=self.registry,
        )
        self.registry.register(_Timings(self.findings))

    async def run(self, session: aiohttp.ClientSession) -> None:
        prober, reported_at = Prober(session, self._now), time.monotonic()
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                self._begin_due(prober, self._now())
                if time.monotonic() - reported_at >= TELL_SECONDS and self._may_tell():
                    reported_at = time.monotonic()
                    await self._tell_found()
        finally:
            for task in self._rounds.values():
                task.cancel()

    def _begin_due(self, prober: Prober, now: float) -> None:
        state = self._held
        tenants = canary_tenants(state.tables)
        if not self._seconds or state.is_draining or state.is_revoked or tenants is None:
            return
        engines = {agent: engine for agent, engine in state.tables.engines.items() if engine.is_open and engine.models}
        self._rounds = {agent: task for agent, task in self._rounds.items() if not task.done()}
        self.findings.keep(state.tables.engines)
        for agent in self._take_turns(engines, now):
            if agent not in self._rounds:
                self._rounds[agent] = asyncio.create_task(self._round(prober, engines[agent], tenants))

    def _take_turns(self, engines: Collection[str], now: float) -> list[str]:
        """Return the engines to probe now. Reschedule all if the gateways that share the work have changed."""
        turns = Turns.among(self._held.tables.gateways, own=self._own, seconds=self._seconds)
        scheduled = self._due if turns == self._turns else {}
        self._turns = turns
        due = {
            agent: probe_time
            for agent, probe_time in scheduled.items()
            if agent in engines and turns.is_near(probe_time, now)
        }
        overdue = [agent for agent, probe_time in due.items() if probe_time <= now]
        number = turns.number(now)
        for agent in {*engines} - due.keys():
            due[agent] = turns.next_moment(agent, after=number)
        for agent in overdue:  # a moment late in a turn is noticed in the next turn, which still gets its own probe
            due[agent] = turns.next_moment(agent, after=max(turns.number(due[agent]), number - 1))
        self._due = due
        return overdue

    async def _round(self, prober: Prober, engine: Engine, tenants: tuple[Tenant, Tenant]) -> None:
        verdict = await prober.round(engine, tenants)
        if verdict.outcome == "failed" and self._is_out_of_date(engine, tenants):
            return  # its tenants changed during the round, so that the failure proves nothing
        self._found(engine.agent, verdict)

    def _is_out_of_date(self, engine: Engine, tenants: tuple[Tenant, Tenant]) -> bool:
        tables = self._held.tables
        return tables.engines.get(engine.agent) != engine or canary_tenants(tables) != tenants

    def _found(self, agent: str, verdict: Verdict) -> None:
        self.findings.add(agent, verdict, self._now())
        self._counted.labels(agent, verdict.outcome).inc()
        if verdict.outcome == "leaked":
            log.error("isolation is broken at engine %s: %s", agent, verdict.why)
        elif verdict.why:
            log.info("a probe at engine %s proved nothing: %s", agent, verdict.why)

    async def _tell_found(self) -> None:
        if agent_reports := self.findings.take():
            await self._tell([Report("canary", {"at": self._now(), "agents": agent_reports})])


class _Timings(Collector):
    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def collect(self) -> Iterator[Metric]:
        low, high = (
            GaugeMetricFamily(f"luminet_canary_timing_auc_{end}", f"{end.title()} {_AUC_ABOUT}", labels=("agent",))
            for end in ("low", "high")
        )
        for agent, finding in sorted(self._findings.all().items()):
            if finding.interval is not None:
                low.add_metric((agent,), finding.interval.low)
                high.add_metric((agent,), finding.interval.high)
        yield low
        yield high
