"""A sidecar's own small HTTP face, for who watches over it: whether it works, and its numbers."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from engine_agent.scraping import REFUSAL, Scrapers
from engine_agent.sidecar.metrics import CONTENT_TYPE
from engine_agent.sidecar.runtime import Runtime


@asynccontextmanager
async def status_served(runtime: Runtime, scrapers: Scrapers, *, host: str, port: int) -> AsyncIterator[None]:
    """Raises OSError where nothing can listen there."""
    app = web.Application()

    async def health(request: web.Request) -> web.Response:
        return web.json_response(status(runtime))

    async def metrics(request: web.Request) -> web.Response:
        if not scrapers.may_read({name.lower(): value for name, value in request.headers.items()}, request.remote):
            raise web.HTTPUnauthorized(text=f"{REFUSAL}\n", headers={"www-authenticate": "Bearer"})
        return web.Response(body=runtime.metrics.exposition(), headers={"content-type": CONTENT_TYPE})

    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()


def status(runtime: Runtime) -> dict[str, Any]:
    machine = runtime.machine
    state, why = machine.engine_state
    held = machine.held
    return {
        "status": "ok",
        "agent": runtime.credentials.agent,
        "engine": {"state": state, "why": why},
        "held": held and {"generation": held.generation, "hash": held.hash},
        "spooled_reports": machine.spooled,
        "heard_seconds_ago": round(time.monotonic() - runtime.heard_at, 1) if runtime.heard_at else None,
    }
