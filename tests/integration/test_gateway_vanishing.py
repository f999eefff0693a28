"""A machine that vanishes without a reset frees every request of its engines within 10 s, whatever each waits for."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from engine_agent.contracts.block_events import Load
from engine_agent.gateway import engines as lookout
from engine_agent.gateway import silence
from tests.fleet.vanishing import Machine, namespaced_machine, proxied_machine, why_no_namespace
from tests.gateway.snapshots import KEY, MODEL, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import Gateway
from tests.support.waiting import wait_until
from tests.unit.server.asking import Answered

OTHER = "other"  # a model of a second engine on the same machine, which has room
SEATED = ("headers", "stream", "whole", "send")  # what a request is waiting for when the machine vanishes
LOST, EITHER = {"engine_lost"}, {"engine_lost", "no_engine"}  # whether it was asked is a matter of who noticed first
CODES = {"headers": LOST, "stream": LOST, "whole": LOST, "send": LOST, "seat": EITHER, "dial": EITHER}
UNREAD = "x" * (16 << 20)  # more than sockets hold
CONTEXT_TOKENS = 8_000_000
SECONDS = 60


class WatchedGateway(Gateway):
    """Its first engine has as many seats as there are requests for them. Writes down which of them ended, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.seconds: list[float] = []  # from the mark until each of them
        ended, self._began = self.observer.ended, 0.0

        def noted(model: str, outcome: Any) -> None:
            self._note(outcome)
            ended(model, outcome)

        self.observer.ended = noted  # type: ignore[method-assign]

    def _load(self, agent: str) -> Load | None:
        return Load(0, 0, len(SEATED), 0, 0, 0.0) if agent == "agent-1" else None

    def _note(self, event: str) -> None:
        self.events.append(event)
        self.seconds.append(self.loop.time() - self._began)

    def mark(self, seconds: float) -> None:
        """Write down when so many seconds are over from now on, as its event loop lives through them."""

        async def mark() -> None:
            self._began, lived = self.loop.time(), 0.0
            while lived < seconds:
                began = self.loop.time()
                await asyncio.sleep(0.05)
                lived += min(self.loop.time() - began, silence.MOST_TICK_SECONDS)
            self._note("over")

        self._marking = asyncio.run_coroutine_threadsafe(mark(), self.loop)


@contextmanager
def watched_gateway(machine: Machine) -> Iterator[WatchedGateway]:
    running = WatchedGateway()
    running.start()
    try:
        routes = (
            route("agent-1", machine.url, context_tokens=CONTEXT_TOKENS),
            route("agent-2", machine.url, models=(OTHER,)),
        )
        running.apply(gateway_snapshot(tenants(), *routes))
        wait_until(lambda: all(running.engines.standing(agent).look_seconds > 0 for agent in ("agent-1", "agent-2")))
        yield running
    finally:
        running.stop()


def ask(gateway: Gateway, kind: str) -> Answered:
    fields: dict[str, Any] = {"prompt": UNREAD if kind == "send" else kind, "stream": kind == "stream"}
    body = {"model": OTHER if kind == "dial" else MODEL, **fields}
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{gateway.url}/v1/completions", json=body, headers=headers, timeout=SECONDS)
    return Answered(answer.status_code, dict(answer.headers), answer.content)


def code_of(kind: str, answer: Answered) -> str:
    told = answer.events[-1] if kind == "stream" else json.loads(answer.body)
    code: str = told["error"]["code"]
    return code


def vanished(machine: Machine, seconds: float) -> WatchedGateway:
    """Whose requests have all ended, and so has the time that was marked."""
    with watched_gateway(machine) as gateway, ThreadPoolExecutor(len(CODES)) as threads:
        asked: dict[str, Future[Answered]] = {kind: threads.submit(ask, gateway, kind) for kind in SEATED}
        wait_until(lambda: gateway.engines.standing("agent-1").in_flight == len(SEATED))
        asked["seat"] = threads.submit(ask, gateway, "seat")
        wait_until(lambda: gateway.gate.waiting == 1)
        gateway.mark(seconds)
        machine.vanish()
        asked["dial"] = threads.submit(ask, gateway, "dial")
        assert all(code_of(kind, answer.result(SECONDS)) in CODES[kind] for kind, answer in asked.items())
        wait_until(lambda: "over" in gateway.events)
        assert gateway.engines.in_flight == gateway.gate.waiting == 0
        return gateway


def test_vanished_machine_frees_its_requests_within_ten_seconds() -> None:
    if reason := why_no_namespace():
        print(f"by a proxy that stops: {reason}")
    with proxied_machine() if reason else namespaced_machine() as machine:
        gateway = vanished(machine, 10.0)
    print([round(seconds, 2) for seconds in gateway.seconds])
    assert gateway.events[-1] == "over"
    assert len(gateway.events) == len(CODES) + 1


def test_proxy_that_stops_frees_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 0.2)
    with proxied_machine() as machine:
        gateway = vanished(machine, 1.0 + lookout.LOOK_SECONDS + lookout.TICK_SECONDS + 1.0)
    assert gateway.events[-1] == "over"
    assert len(gateway.events) == len(CODES) + 1
