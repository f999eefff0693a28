"""Many streams at once through one gateway, that say next to nothing for a long time."""

import asyncio
import contextlib
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from engine_agent.process.commands import open_files_raise
from tests.gateway.bad_clients import connected
from tests.gateway.bad_requests import GOOD, request

OPENING = 50  # at once
PATIENCE_SECONDS = 120.0
TOKEN = b"data: "
ASKED = request(json.dumps({**GOOD, "stream": True}).encode())
SPARE_FILES = 256  # of a process, besides connections


def files_short_of(streams: int) -> str | None:
    """Why this machine cannot hold them: a gateway has two connections for each. None: it can."""
    hard, wanted = resource.getrlimit(resource.RLIMIT_NOFILE)[1], 2 * streams + SPARE_FILES
    return (
        None if hard >= wanted else f"a process may open {hard:,} files here, and {streams:,} streams take {wanted:,}"
    )


@dataclass(slots=True)
class Stream:
    tokens: int = 0
    is_open: bool = True


@dataclass(slots=True)
class Streams:
    every: list[Stream] = field(default_factory=list)

    @property
    def broken(self) -> int:
        return sum(not one.is_open for one in self.every)

    async def until_all_have(self, tokens: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(one.is_open and one.tokens < tokens for one in self.every):  # noqa: ASYNC110 (of very many tasks)
                await asyncio.sleep(0.05)


@asynccontextmanager
async def open_streams(port: int, count: int) -> AsyncIterator[Streams]:
    """Each has had its first token; at the end all of them leave."""
    open_files_raise()
    streams, seats = Streams([Stream() for _ in range(count)]), asyncio.Semaphore(OPENING)
    tasks = [asyncio.create_task(_hold(port, one, seats)) for one in streams.every]
    try:
        await streams.until_all_have(1)
        yield streams
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hold(port: int, one: Stream, seats: asyncio.Semaphore) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        async with contextlib.AsyncExitStack() as opened:
            async with seats:
                reader, writer = await opened.enter_async_context(connected(port))
                writer.write(ASKED)
                await reader.readuntil(TOKEN)
                one.tokens = 1
            while True:
                await reader.readuntil(TOKEN)
                one.tokens += 1
    one.is_open = False  # nobody else ends it but by cancelling
