"""Serve a sidecar's health and metrics over HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from engine_agent.http.application import Application
from engine_agent.http.client import Client
from engine_agent.http.connection_limits import ConnectionLimits
from engine_agent.http.errors import ApiError, unavailable
from engine_agent.http.listening import bind_tcp
from engine_agent.http.scraping import Scrapers
from engine_agent.http.serving import server_of
from engine_agent.sidecar.runtime import Runtime

WRITE_SECONDS = 30.0
MOST_CONNECTIONS = 64


@asynccontextmanager
async def status_served(runtime: Runtime, scrapers: Scrapers, *, host: str, port: int) -> AsyncIterator[None]:
    """Serve the status within the context. Raise CannotListen."""
    server = server_of(StatusApp(runtime, scrapers), limits=ConnectionLimits(total=MOST_CONNECTIONS))
    serving = asyncio.create_task(server.serve(sockets=[bind_tcp(host, port)]))
    try:
        await server.is_up.wait()
        yield
    finally:
        server.should_exit = True
        await serving


class StatusApp(Application):
    def __init__(self, runtime: Runtime, scrapers: Scrapers) -> None:
        super().__init__(write_seconds=WRITE_SECONDS, scrapers=scrapers)
        self._runtime = runtime
        self._paths = {"/health": ("GET", self._health), "/metrics": ("GET", self._metrics)}

    async def _health(self, client: Client) -> None:
        await client.answer_json(200, status(self._runtime))

    async def _metrics_text(self) -> bytes:
        return self._runtime.metrics.exposition()

    async def _model(self, client: Client, name: str) -> None:
        raise ApiError(404, "There is nothing at this path.", code="not_found")

    def _refused(self, error: ApiError) -> None:
        """Refusals are not counted here."""

    def _stopping(self) -> ApiError:
        return unavailable("The sidecar stops.", "stopping")


def status(runtime: Runtime) -> dict[str, Any]:
    machine = runtime.machine
    state, why = machine.engine_state
    applied = machine.held
    return {
        "status": "ok",
        "agent": runtime.credentials.agent,
        "engine": {"state": state, "why": why},
        "held": applied and {"generation": applied.generation, "hash": applied.hash},
        "spooled_reports": machine.spooled,
        "heard_seconds_ago": round(time.monotonic() - runtime.heard_at, 1) if runtime.heard_at else None,
    }
