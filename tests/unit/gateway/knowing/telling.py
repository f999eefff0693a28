"""A web server that tells a gateway what the test has it tell: an engine's face, for what no engine says on purpose."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from engine_agent.contracts.block_events import CONTENT_TYPE, BlockChange, Load, Page, events_encode
from engine_agent.contracts.identity import HEADER, WATCH, verify
from engine_agent.gateway.tables import Engine, ServedModel
from tests.unit.gateway.knowing.saying import bundle_bytes, loaded

SECRET = b"s" * 44
LOAD = Load(running=1, waiting=2, seats=4, free_blocks=100, pool_blocks=200, seconds_behind=0.5)


class Teller:
    def __init__(self) -> None:
        self.boot, self.status, self.abouts = "boot-1", 200, 0
        self.pages: asyncio.Queue[bytes] = asyncio.Queue()
        self.asked: list[tuple[str, int]] = []  # boot and number, of each page that was asked for
        self.about: dict[str, Any] = {
            "agent": "agent-1",
            "model": "demo",
            "revision": "r1",
            "block_tokens": 16,
            "kv_dtypes": ["bf16", "int4"],
            "scale_sets": {"bf16": "", "int4": ""},
            "bundle": loaded().name,
            "seats": 4,
        }
        self.engine: Engine

    def tell(
        self, number: int, *changes: BlockChange, boot: str = "", is_snapshot: bool = False, more: bool = False
    ) -> None:
        page = Page(boot or self.boot, number, is_snapshot, not more, LOAD, changes)
        self.pages.put_nowait(events_encode(page))

    async def _about(self, request: web.Request) -> web.Response:
        self._check(request)
        self.abouts += 1
        return web.json_response({**self.about, "boot": self.boot}, status=self.status)

    async def _bundle(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.Response(body=bundle_bytes())

    async def _events(self, request: web.Request) -> web.Response:
        self._check(request)
        self.asked.append((request.query["boot"], int(request.query["since"])))
        return web.Response(body=await self.pages.get(), content_type=CONTENT_TYPE)

    def _check(self, request: web.Request) -> None:
        found = verify(request.headers[HEADER], [SECRET], audience="agent-1", now=1_000.0)
        assert found.scope == WATCH


@asynccontextmanager
async def telling() -> AsyncIterator[Teller]:
    teller, app = Teller(), web.Application()
    app.router.add_get("/gateway/about", teller._about)
    app.router.add_get("/gateway/bundles/{name}", teller._bundle)
    app.router.add_get("/gateway/events", teller._events)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    teller.engine = Engine("agent-1", address, True, {"demo": ServedModel(("bf16", "int4"), 2_048, 0)}, SECRET)
    try:
        yield teller
    finally:
        await runner.cleanup()
