"""A real gateway face, in a thread of its own, in front of real `luminet engine` processes with the demo model."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from engine_agent.contracts.block_events import Load
from engine_agent.contracts.protocol import Change, Snapshot, change_encode, snapshot_encode
from engine_agent.gateway.app import Door, GatewayApp
from engine_agent.gateway.engines import Engines, Lookout
from engine_agent.gateway.forwarding import Ways
from engine_agent.gateway.held import Held
from engine_agent.gateway.holder import GatewayHolder, about_gateway
from engine_agent.gateway.knowing.knowing import Knowing
from engine_agent.gateway.limits import Limits
from engine_agent.gateway.looking import session_open
from engine_agent.gateway.metrics import Observer
from engine_agent.gateway.quotas.gate import QUEUE_SECONDS, Gate
from engine_agent.gateway.route import Router, Routing
from engine_agent.gateway.upstream import Upstream
from engine_agent.http.serving import server_of
from engine_agent.process.commands import loop_factory
from tests.engines.processes import Engine, engine, state_folder
from tests.gateway.snapshots import CHECK, POLICY, SECRETS, Entries, engine_snapshot, gateway_snapshot, route, tenants
from tests.support.waiting import wait_until

T = TypeVar("T")
SECONDS = 120  # of a machine that is busy with other things


class Gateway:
    """Whatever it has is its loop's; `do` asks there."""

    def __init__(self, routing: Routing = "cache-aware", *, queue_seconds: float = QUEUE_SECONDS) -> None:
        self._routing = routing
        self._is_up, self._stop = threading.Event(), asyncio.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run_all, name="gateway")
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.held, self.engines, self.observer = Held(), Engines(self._load), Observer()
        self.gate = Gate(self.engines, queue_seconds=queue_seconds, tell=self.observer.waited)
        self.holder = GatewayHolder(self.held, self.engines, about_gateway(self.url, {}), lambda: self.gate.waiting)
        self.knowing: Knowing | None = None
        self.ahead_seconds = 0.0  # of its clock
        self.loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(SECONDS), "the gateway did not start"

    def heard(self) -> bool:
        """Whether every engine of it has told what it holds."""
        return self.knowing is not None and all(self.knowing.heard(agent) for agent in self.held.tables.engines)

    def now(self) -> float:
        return time.time() + self.ahead_seconds

    def _load(self, agent: str) -> Load | None:
        return None if self.knowing is None else self.knowing.load(agent)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    def apply(self, news: Snapshot | Change) -> str:
        return self.do(self.holder.apply(snapshot_encode(news) if isinstance(news, Snapshot) else change_encode(news)))

    def _run_all(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with Upstream() as upstream, session_open() as looking:
            held = self.held
            self.knowing = Knowing(lambda: held.tables.engines, looking, time.time)
            known = self.knowing if self._routing == "cache-aware" else None
            ways = Ways(Router(self._routing), self.engines, upstream, self.observer, self.now, self.gate, known)
            limits = Limits(lambda: held.tables.most_context_tokens)
            server = server_of(GatewayApp(Door(held, lambda: CHECK, ways, limits)))
            knowing = asyncio.create_task(self.knowing.run())
            lookout = asyncio.create_task(Lookout(self.engines, lambda: held.tables.engines, looking).run())
            serving = asyncio.create_task(server.serve(sockets=[self._socket]))
            await server.is_up.wait()
            self._is_up.set()
            await self._stop.wait()
            server.should_exit = True
            await serving
            lookout.cancel()
            knowing.cancel()
            await asyncio.wait({lookout, knowing})


@contextmanager
def gateway(routing: Routing = "cache-aware") -> Iterator[Gateway]:
    running = Gateway(routing)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@dataclass
class Fleet:
    gateway: Gateway
    engines: Mapping[str, Engine]

    def hold(
        self,
        *extra: Entries,
        who: Entries | None = None,
        policies: Sequence[Mapping[str, Any]] = (POLICY,),
        states: Mapping[str, str] | None = None,
    ) -> None:
        """Everybody obeys it: these tenants, these engines with these states, and what else a gateway may hold."""
        tenancy = tenants() if who is None else who
        told = engine_snapshot(tenancy, policies=policies)
        for one in self.engines.values():
            assert one.admin("POST", "/apply", told_as(told)).status == 200
        self.gateway.apply(gateway_snapshot(tenancy, *self.routes(states or {}), *extra, policies=policies))

    def routes(self, states: Mapping[str, str]) -> list[Entries]:
        return [
            route(agent, f"http://127.0.0.1:{one.port}", state=states.get(agent, "active"))
            for agent, one in self.engines.items()
        ]

    def running(self) -> int:
        return sum(int(one.admin("GET", "/stats").json["running"]) for one in self.engines.values())

    def until_idle(self) -> None:
        wait_until(lambda: self.running() == 0 and self.gateway.engines.in_flight == 0)


def told_as(snapshot: Snapshot) -> Any:
    return json.loads(snapshot_encode(snapshot))


@contextmanager
def fleet_engine(agent: str, *arguments: str) -> Iterator[Engine]:
    with state_folder() as folder:
        folder.mkdir()
        secret = folder / "identity-secret"
        secret.write_text(SECRETS[agent])
        options = ("--identity-secret-file", str(secret), "--agent-id", agent, *arguments)
        with engine(*options, state=folder) as running:
            yield running


@contextmanager
def fleet(*agents: str) -> Iterator[Fleet]:
    with ExitStack() as opened:
        engines = {agent: opened.enter_context(fleet_engine(agent)) for agent in agents}
        running = Fleet(opened.enter_context(gateway()), engines)
        running.hold()
        yield running
