"""An engine's place behind a gateway, for what no engine is there to show: `python -m tests.gateway.stand_in`.

Whole answers come at once, streams drip a token every so many seconds, or rush, until their client leaves, and it tells
of as many blocks as it is asked to. `/state` says what became of its requests.
"""

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache

import httpx
from aiohttp import web

from engine_agent.contracts.block_events import CONTENT_TYPE, MARK_BYTES, BlockChange, Load, Page, events_encode
from engine_agent.process.commands import loop_factory, open_files_raise
from engine_agent.process.config import CHECKOUT
from engine_agent.prompts.bundle import Bundle, bundle_encode, bundle_name
from tests.engines.processes import DEMO
from tests.gateway.snapshots import MODEL

BOOT = "boot-1"
LOAD = Load(running=0, waiting=0, seats=0, free_blocks=1, pool_blocks=1, seconds_behind=0.0)
IN_PAGE = 250_000  # blocks: two megabytes of marks
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
ANSWER = {"id": "x", "object": "text_completion", "model": MODEL, "choices": [{"index": 0, "text": "x"}]}
TOKEN = b"data: %b\n\n" % json.dumps(ANSWER).encode()
MOST_BODY_BYTES = 2**30
HASTY = "hasty"  # the user of a stream whose tokens come as fast as they are read


@dataclass(slots=True)
class State:
    """Of requests that generate: all that came, those under way, the most at once, and streams whose client left."""

    begun: int = 0
    running: int = 0
    most: int = 0
    left: int = 0


class StandIn:
    def __init__(self, *, blocks: int, roots: int, seconds: float) -> None:
        self._state, self._seconds = State(), seconds
        self._pages = list(pages(blocks, roots))

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BODY_BYTES)
        app.router.add_get("/health", self._health)
        app.router.add_get("/state", self._told)
        app.router.add_get("/gateway/about", self._about)
        app.router.add_get("/gateway/bundles/{name}", self._bundle)
        app.router.add_get("/gateway/events", self._events)
        for path in ("/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self._generate)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def _told(self, request: web.Request) -> web.Response:
        return web.json_response(asdict(self._state))

    async def _about(self, request: web.Request) -> web.Response:
        told = {"model": MODEL, "boot": BOOT, "revision": "r1", "block_tokens": 16, "seats": 0}
        formats = {"kv_dtypes": ["bf16"], "scale_sets": {"bf16": ""}}
        return web.json_response({**told, **formats, "bundle": bundle_name(bundle())})

    async def _bundle(self, request: web.Request) -> web.Response:
        return web.Response(body=bundle())

    async def _events(self, request: web.Request) -> web.Response:
        number = int(request.query["since"])
        if number == len(self._pages):
            await asyncio.sleep(float(request.query["wait"]))
            page = Page(BOOT, number, False, True, LOAD, ())
        else:
            page = self._pages[number]
        return web.Response(body=events_encode(page), content_type=CONTENT_TYPE)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        state = self._state
        state.begun, state.running = state.begun + 1, state.running + 1
        state.most = max(state.most, state.running)
        try:
            body = json.loads(await request.read())
            if body.get("stream") is not True:
                return web.json_response(ANSWER | {"usage": USAGE})
            return await self._dripping(request, 0.0 if body.get("user") == HASTY else self._seconds)
        finally:
            state.running -= 1

    async def _dripping(self, request: web.Request, seconds: float) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        try:
            await answer.prepare(request)
            while True:
                await answer.write(TOKEN)
                await asyncio.sleep(seconds)
        except OSError:
            self._state.left += 1
            return answer
        except asyncio.CancelledError:
            self._state.left += 1
            raise


@cache
def bundle() -> bytes:
    return bundle_encode(Bundle.from_folder(DEMO))


def pages(blocks: int, roots: int) -> Iterator[Page]:
    """One snapshot in several pages: as many blocks below each root, by chance and each time the same ones."""
    chance, each = random.Random(blocks), blocks // max(1, roots)
    step = max(1, IN_PAGE // max(1, each))
    begins = range(0, roots if each else 1, step)
    for number, begin in enumerate(begins, 1):
        changes = [
            _stored(root, chance.randbytes(each * MARK_BYTES)) for root in range(begin, min(begin + step, roots))
        ]
        yield Page(BOOT, number, number == 1, number == len(begins), LOAD, tuple(changes) if each else ())


def _stored(root: int, marks: bytes) -> BlockChange:
    name = root.to_bytes(MARK_BYTES, "little")
    return BlockChange("stored", f"n{root}", name, name, marks)


@dataclass(frozen=True, slots=True)
class Running:
    url: str

    @property
    def state(self) -> State:
        return State(**httpx.get(f"{self.url}/state", timeout=60).json())


@contextmanager
def stand_in(*, blocks: int = 0, roots: int = 1, seconds: float = 60.0) -> Iterator[Running]:
    """In a process of its own, ready. `seconds` pass between two tokens of a stream."""
    command = [sys.executable, "-m", "tests.gateway.stand_in", "--blocks", str(blocks), "--roots", str(roots)]
    process = subprocess.Popen([*command, "--seconds", str(seconds)], cwd=CHECKOUT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield Running(process.stdout.readline().decode().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _serve(engine: StandIn) -> None:
    open_files_raise()
    runner = web.AppRunner(engine.app(), shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1_024)
    await site.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await ended.wait()
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gateway.stand_in", description="Stand in for an engine.")
    parser.add_argument("--blocks", type=int, default=0, help="that it tells of (0)")
    parser.add_argument("--roots", type=int, default=1, help="below which they are, evenly (1)")
    parser.add_argument("--seconds", type=float, default=60.0, help="between two tokens of a stream (60)")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(StandIn(blocks=options.blocks, roots=options.roots, seconds=options.seconds)))


if __name__ == "__main__":
    main()
