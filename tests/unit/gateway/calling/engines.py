"""Engines that say on a connection what a test has them say, byte by byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

from engine_agent.gateway.calling.answer import Answer
from engine_agent.gateway.tables import Engine
from engine_agent.gateway.upstream import Upstream

SECONDS = 20
Says = Callable[["Talk"], Awaitable[None]]
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Talk:
    """One connection, as the engine has it."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number, self.reader, self.writer = number, reader, writer
        self.head = b""

    async def heard(self) -> bytes:
        """A whole request's body."""
        await self.heard_head()
        length = next(line for line in self.head.split(b"\r\n") if line.startswith(b"content-length: "))
        return await self.reader.readexactly(int(length.partition(b": ")[2]))

    async def heard_head(self) -> None:
        self.head = await self.reader.readuntil(b"\r\n\r\n")

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_left(self) -> None:
        with suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass


class Running:
    def __init__(self, says: Says) -> None:
        self._says, self._talking = says, set[asyncio.Task[None]]()
        self.connections = 0
        self.engine: Engine

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._talking.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._says(Talk(self.connections, reader, writer))
        finally:
            self._talking.discard(task)
            writer.close()

    async def end(self) -> None:
        for task in [*self._talking]:
            task.cancel()
        if self._talking:
            await asyncio.wait([*self._talking])


@asynccontextmanager
async def engine(says: Says, tls: ssl.SSLContext | None = None) -> AsyncIterator[Running]:
    running = Running(says)
    server = await asyncio.start_server(running.talk, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
    running.engine = Engine("agent-1", f"{scheme}://{host}:{port}", True, {}, b"s" * 44)
    try:
        async with asyncio.timeout(SECONDS):
            yield running
    finally:
        server.close()
        await running.end()


def asked(upstream: Upstream, engine: Engine, body: bytes = b"{}") -> AbstractAsyncContextManager[Answer]:
    return upstream.asked(engine, "/v1/x", body, identity="v1.id", request_id="r1", waiting=nullcontext())
