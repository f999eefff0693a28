"""One engine process: its public and its admin API in one event loop, from start to stop.

The first stop signal refuses new requests and lets running ones finish, within bounds. The second stops at once.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from engine_agent.backends.base import OpenBackend
from engine_agent.engine.errors import EngineError
from engine_agent.http.connection_limits import half_for_one_address
from engine_agent.http.serving import GRACE_SECONDS, Server, server_of
from engine_agent.journal.journal import Journal, JournalFull
from engine_agent.process.commands import open_files_raise
from engine_agent.process.stopping import StopSignals, first
from engine_agent.prompts.bundle import Bundle
from engine_agent.prompts.renderer import BoundedTemplate, Renderer
from engine_agent.server.admin import AdminFace
from engine_agent.server.alone import LocalTenants, identity
from engine_agent.server.app import OpenAiApp, openai_app
from engine_agent.server.doors import Doors
from engine_agent.server.face import Template, Text
from engine_agent.server.fleet_clock import FleetClock
from engine_agent.server.gateways import GatewayDoor
from engine_agent.server.guard import Guard, KeyGuard, SignedGuard
from engine_agent.server.metrics import Observer
from engine_agent.server.policy_file import BadPolicy, read_policy_file
from engine_agent.server.token_wall import TokenWall
from engine_agent.server.warmups import WarmUps

log = logging.getLogger(__name__)
JOURNAL_BYTES = 2**30  # without a sidecar's visit; then requests are refused, because they could not be counted
JOURNAL_BYTES_ALONE = 64 * 2**20  # then the oldest records are dropped
FLUSH_SECONDS = 1.0
LOOK_SECONDS = 0.02
RENDER_WAIT_SECONDS = 30.0  # how long a chat waits for earlier ones to be rendered
SPARE_FILES, LEAST_CONNECTIONS = 256, 64  # files for other uses than clients; connections at least


class EngineProcess:
    def __init__(self, resources: Doors, backend: OpenBackend, tokenizer: Text, bundle: Bundle) -> None:
        self._doors, self._config, self._backend = resources, resources.config, backend
        self._tokenizer, self._bundle = tokenizer, bundle
        self._renderer = Renderer(wait_seconds=RENDER_WAIT_SECONDS)
        self._template: Template = BoundedTemplate(bundle.template, self._renderer)
        self._signals = StopSignals()
        self._tenants: LocalTenants | None = None
        self._public: OpenAiApp | None = None
        self._deeds: set[asyncio.Task[None]] = set()
        self._clock, self._observer = FleetClock(), Observer(backend.card.name)

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Serve and return the process's exit status. `on_ready` is called when both APIs answer."""
        self._signals.listen()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._read_again)
        boot = str((await self._backend.stats())["boot"])
        is_alone = self._config.is_alone
        journal = Journal.open(
            self._config.state / "journal",
            boot,
            most_bytes=JOURNAL_BYTES_ALONE if is_alone else JOURNAL_BYTES,
            drops_oldest=is_alone,
        )
        flushing = asyncio.create_task(_flush(journal))
        try:
            await self._renderer.warm()
            self._backend.on_internal = WarmUps(self._backend, journal, self._observer.totals, self._clock).admitted
            if is_alone:
                await self._be_alone()
            return await self._serve(self._servers(journal), on_ready)
        finally:
            flushing.cancel()
            journal.close()
            self._renderer.close()

    async def _be_alone(self) -> None:
        self._tenants = LocalTenants(self._doors.state, self._backend, self._tokenizer, self._template)
        try:
            await self._tenants.publish(self._doors.policy)
        except EngineError as problem:
            if self._config.policy is None:
                raise
            raise BadPolicy(f"{self._config.policy}: {problem}") from problem

    def _servers(self, journal: Journal) -> dict[Server, socket.socket]:
        backend, agent_id = self._backend, self._config.agent_id
        clock, observer = self._clock, self._observer
        guard, gateways = self._guards(clock)
        self._public = public = openai_app(
            backend,
            self._tokenizer,
            self._template,
            journal,
            guard,
            agent_id=agent_id,
            observer=observer,
            clock=clock,
            gateways=gateways,
            scrapers=self._config.scrapers,
        )
        admin: Any = AdminFace(
            backend,
            journal,
            agent_id=agent_id,
            tokenizer=self._tokenizer,
            template=self._template,
            tenants=self._tenants,
            counters=observer.counters,
            totals=observer.totals,
            clock=clock,
            address=self._config.url,
        ).app()
        if token := self._doors.admin_token:
            admin = TokenWall(admin, token)
        limits = half_for_one_address(max(LEAST_CONNECTIONS, open_files_raise() - SPARE_FILES))
        return {server_of(public, limits=limits): self._doors.public, server_of(admin): self._doors.admin}

    def _guards(self, clock: FleetClock) -> tuple[Guard, GatewayDoor | None]:
        """Return the guard, and the gateways' endpoints unless the engine is standalone."""
        if self._tenants is None:
            guard = SignedGuard(self._doors.identity_secrets, self._config.agent_id, clock=clock)
            clock.on_moved = guard.clock_moved
            return guard, GatewayDoor(self._backend, self._bundle, guard, self._config.agent_id)
        key = sha256((self._doors.api_key or "").encode()).digest()
        return KeyGuard(key, identity(self._tenants.revision, self._config.agent_id)), None

    async def _serve(self, servers: dict[Server, socket.socket], on_ready: Callable[[], None]) -> int:
        serving = [asyncio.create_task(server.serve(sockets=[bound])) for server, bound in servers.items()]
        try:
            for server in servers:
                await first(server.is_up.wait(), serving)
            on_ready()
            await first(self._signals.stopping.wait(), serving)
            await self._drain()
            if self._public is not None:
                self._public.stop()
            await self._backend.close()  # running requests fail, and their clients get an error
        finally:
            for server in servers:
                server.should_exit = True
                server.force_exit = self._signals.now.is_set()
            await asyncio.gather(*serving)
            await _ended({task for server in servers for task in server.server_state.tasks})
        return self._signals.exit_status

    async def _drain(self) -> None:
        """Wait until nothing runs any more, the time is over, or a second signal comes."""
        unfinished, until = await self._backend.drain(True), time.monotonic() + self._config.drain_seconds
        if unfinished:
            log.info(
                "stopping: %d requests are finished first, for at most %g s", unfinished, self._config.drain_seconds
            )
        while unfinished and time.monotonic() < until and not self._signals.now.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._signals.now.wait(), LOOK_SECONDS)
            unfinished = await self._backend.drain(True)

    def _read_again(self) -> None:
        task = asyncio.create_task(self._republish())
        self._deeds.add(task)
        task.add_done_callback(self._deeds.discard)

    async def _republish(self) -> None:
        """Publish the policy file again. If it is invalid, nothing changes and the log says why."""
        path = self._config.policy
        if path is None or self._tenants is None:
            log.warning("SIGHUP: there is no policy file to read again")
            return
        try:
            revision = await self._tenants.publish(await asyncio.to_thread(read_policy_file, path))
        except (EngineError, OSError) as problem:
            log.error("the policy stays as it was: %s", problem)
        else:
            log.info("%s is obeyed from now on, as revision %d", path, revision)


async def _flush(journal: Journal) -> None:
    """Write closing records that found no room once there is some, even without new requests."""
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        if journal.waiting:
            with contextlib.suppress(JournalFull):
                journal.flush()


async def _ended(tasks: set["asyncio.Task[Any]"]) -> None:
    """Let interrupted requests write their closing records."""
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE_SECONDS)
