"""One gateway process: its API and its sidecar in one event loop, from start to exit.

The first stop signal refuses new requests and finishes running ones, within a time limit. The second stops at once.
"""

import asyncio
import base64
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from prometheus_client.registry import Collector

from engine_agent.contracts.block_events import Load
from engine_agent.contracts.protocol import snapshot_encode
from engine_agent.gateway.app import Door, GatewayApp
from engine_agent.gateway.canary.watch import Canary
from engine_agent.gateway.config import GatewayConfig
from engine_agent.gateway.diverging.diverging import Diverging
from engine_agent.gateway.engines import Engines, Lookout
from engine_agent.gateway.forwarding import Ways
from engine_agent.gateway.held import Held
from engine_agent.gateway.holder import GatewayHolder, about_gateway
from engine_agent.gateway.holding import Holding
from engine_agent.gateway.knowing.knowing import Knowing
from engine_agent.gateway.limits import Limits
from engine_agent.gateway.looking import session_open
from engine_agent.gateway.metrics import Observer
from engine_agent.gateway.quotas.gate import Gate
from engine_agent.gateway.route import Router
from engine_agent.gateway.upstream import Upstream
from engine_agent.http.connection_limits import half_for_one_address
from engine_agent.http.serving import Server, server_of
from engine_agent.process.stopping import StopSignals, first
from engine_agent.sidecar.config import SidecarConfig
from engine_agent.sidecar.credentials import Credentials
from engine_agent.sidecar.holder import HolderError
from engine_agent.sidecar.runtime import Runtime
from engine_agent.sidecar.shelf import shared
from engine_agent.sidecar.store import Store

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.05
CUT_SECONDS = 1.0
HEED_SECONDS = 0.2


class GatewayProcess:
    def __init__(
        self, config: GatewayConfig, credentials: Credentials, public: socket.socket, *, most_connections: int
    ) -> None:
        self._config, self._public, self._most_connections = config, public, most_connections
        self._held, self._engines = Held(), Engines(self._load)
        self._observer = Observer()
        self._gate = Gate(self._engines, queue_seconds=config.queue_seconds, tell=self._observer.waited)
        self._knowing: Knowing | None = None
        about = about_gateway(config.address, config.labels)
        self._holder = GatewayHolder(self._held, self._engines, about, lambda: self._gate.waiting)
        self._runtime = Runtime(SidecarConfig(config.home), credentials, self._holder)
        self._holder.share = lambda snapshot: shared(snapshot, self._runtime.shelf.newest)
        self._canary = Canary(
            self._held,
            seconds=config.canary_seconds,
            now=self._runtime.clock.now,
            tell=self._runtime.report,
            may_tell=lambda: not self._runtime.spool.waiting("canary"),
            own=credentials.agent,
        )
        self._diverging = Diverging(
            now=self._runtime.clock.now,
            tell=self._runtime.report,
            may_tell=lambda: not self._runtime.spool.waiting("diagnostics"),
        )
        self._store = Store(config.home, agent=credentials.agent, key=credentials.sealing_key)
        self._signals, self._ended = StopSignals(), asyncio.Event()

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Return the exit status. `on_ready` is called once the API answers, even without a snapshot."""
        self._signals.listen()
        await self._hold_what_is_stored()
        async with Upstream() as upstream, session_open() as session:
            prefix_index = Knowing(
                lambda: self._held.tables.engines, session, self._runtime.clock.now, self._config.home
            )
            self._knowing, prefix_index.on_prompt = prefix_index, self._diverging.take
            lookout = Lookout(self._engines, lambda: self._held.tables.engines, session)
            collectors: list[Collector] = [self._runtime.metrics.registry, self._canary.registry]
            collectors.append(prefix_index.metrics.registry)
            app = GatewayApp(self._door(upstream, prefix_index, collectors))
            server = server_of(app, limits=half_for_one_address(self._most_connections))
            collectors.append(Holding(app.bodies, server))
            serving = server.serve(sockets=[self._public])
            coroutines = [
                self._runtime.run(self._ended),
                serving,
                lookout.run(),
                self._heed_revocation(),
                self._canary.run(session),
                prefix_index.run(),
                self._diverging.run(),
            ]
            with _running(coroutines) as tasks:
                await first(server.is_up.wait(), tasks)
                on_ready()
                await first(self._signals.stopping.wait(), tasks)
                await self._drain(server)
                await self._cut(server, app)
                await self._end(server, tasks)
        return self._signals.exit_status

    def _load(self, agent: str) -> Load | None:
        return None if self._knowing is None else self._knowing.load(agent)

    async def _hold_what_is_stored(self) -> None:
        """Apply the stored snapshot before the port opens, to serve the first requests as before the restart."""
        if stored := self._runtime.snapshot():
            with contextlib.suppress(HolderError):  # the sidecar finds the same problem, and reports it
                await self._holder.apply(snapshot_encode(stored))

    async def _heed_revocation(self) -> None:
        """Once revoked, stop serving and delete the snapshot, so that an offline restart serves nothing either."""
        while self._runtime.link.why_revoked is None:  # noqa: ASYNC110 (it is told in the midst of something else)
            await asyncio.sleep(HEED_SECONDS)
        self._held.is_revoked = True
        log.error("no request is served any more: %s", self._runtime.link.why_revoked)
        await asyncio.to_thread(self._store.forget)
        await asyncio.Event().wait()

    def _door(self, upstream: Upstream, prefix_index: Knowing, collectors: Iterable[Collector]) -> Door:
        state, runtime = self._held, self._runtime
        routing, now = self._config.routing, runtime.clock.now
        routing_index = prefix_index if routing == "cache-aware" else None  # round-robin routing reads no prompts
        ways = Ways(Router(routing), self._engines, upstream, self._observer, now, self._gate, routing_index)
        limits = Limits(lambda: state.tables.most_context_tokens)
        return Door(
            state,
            lambda: _check(runtime.credentials.keys["check"]),
            ways,
            limits,
            collectors,
            self._config.scrapers,
            agent=runtime.credentials.agent,
        )

    async def _drain(self, server: Server) -> None:
        """Free the port for another gateway. Wait until all clients have their answers, or time is up."""
        self._held.is_draining = True
        server.listen_no_more()
        seconds = self._config.drain_seconds
        if unfinished := server.unfinished:
            log.info("stopping: %d requests are finished first, for at most %g s", unfinished, seconds)
        deadline = time.monotonic() + seconds
        while server.unfinished and time.monotonic() < deadline and not self._signals.now.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._signals.now.wait(), LOOK_SECONDS)

    async def _cut(self, server: Server, app: GatewayApp) -> None:
        """Send errors for incomplete answers. Do not wait long for a client that does not read."""
        self._gate.close()
        await asyncio.sleep(LOOK_SECONDS)  # first, requests that waited for a seat get a specific refusal
        if unfinished := server.unfinished:
            log.warning("stopped before %d requests were finished: their clients are told so", unfinished)
        app.cut()
        deadline = time.monotonic() + CUT_SECONDS
        while server.unfinished and time.monotonic() < deadline:  # noqa: ASYNC110 (the protocol has no event for it)
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self, server: Server, tasks: Sequence["asyncio.Task[None]"]) -> None:
        server.should_exit, server.force_exit = True, self._signals.now.is_set()
        self._ended.set()
        runtime, serving, *_ = tasks
        await asyncio.gather(runtime, serving)


@lru_cache(maxsize=4)
def _check(encoded_key: str | None) -> bytes:
    return base64.b64decode(encoded_key or "")


@contextlib.contextmanager
def _running(coroutines: Sequence[Coroutine[Any, Any, None]]) -> Iterator[Sequence["asyncio.Task[None]"]]:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
