"""Open pages without browsers: websockets signed in as people are, and when each of them heard what."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.waiting import WaitTimeout

OPENING_AT_ONCE = 20
PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Heard:
    """What one page was told last, and when it first saw so many requests."""

    requests: int = -1
    messages: int = 0
    steps: list[tuple[int, float]] = field(default_factory=list)  # requests, and when they were first seen

    def take(self, message: dict[str, Any], at: float) -> None:
        self.messages += 1
        if message.get("type") == "stats" and message["requests"] != self.requests:
            self.requests = message["requests"]
            self.steps.append((self.requests, at))

    def seen_at(self, requests: int) -> float | None:
        """When it showed that many, or more."""
        return next((at for reached, at in self.steps if reached >= requests), None)


class OpenPages:
    """All of them in one event loop of a thread's."""

    def __init__(self, web: str, cookies: dict[str, str], paths: Sequence[str]) -> None:
        self._web, self._cookies, self._paths = web, cookies, paths
        self.pages = [Heard() for _ in paths]
        self.lost: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._serving = asyncio.run_coroutine_threadsafe(self._listen_all(), self._loop)
        self.until(lambda: all(page.requests >= 0 for page in self.pages), "every page to hear how things stand")

    def stop(self) -> None:
        self._serving.cancel()
        asyncio.run_coroutine_threadsafe(_ended(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def until(self, check: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._news:
            while not check():
                if time.monotonic() > deadline or self._serving.done():
                    raise WaitTimeout(f"waited in vain for {what}; {self.lost[:3]}")
                self._news.wait(0.2)

    def until_seen(self, requests: int, *, from_page: int | None = None) -> None:
        chosen = self.pages if from_page is None else [self.pages[from_page]]
        self.until(lambda: all(page.seen_at(requests) for page in chosen), f"{requests} requests on the pages")

    async def _listen_all(self) -> None:
        opening = asyncio.Semaphore(OPENING_AT_ONCE)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookies=self._cookies) as session:
            listening = (
                self._listen(session, path, page, opening) for path, page in zip(self._paths, self.pages, strict=True)
            )
            await asyncio.gather(*listening)

    async def _listen(self, session: aiohttp.ClientSession, path: str, page: Heard, opening: asyncio.Semaphore) -> None:
        async with opening:
            socket = await session.ws_connect(f"{self._web}{path}", headers={"origin": self._web})
        async with socket:
            async for message in socket:
                if message.type == aiohttp.WSMsgType.TEXT:
                    page.take(json.loads(message.data), time.perf_counter())
                    with self._news:
                        self._news.notify_all()
            self.lost.append(f"{path} was closed: {socket.close_code}")


async def _ended() -> None:
    """What was cancelled has come to its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def pages_open(web: str, cookies: dict[str, str], paths: Sequence[str]) -> Iterator[OpenPages]:
    """Of who has these cookies."""
    opened = OpenPages(web, cookies, paths)
    opened.start()
    try:
        yield opened
    finally:
        opened.stop()
