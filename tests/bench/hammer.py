"""A load generator that costs the measured little: requests as bytes made before, kept connections, a parser in C.

`luminet bench` looks at answers piece by piece, as clients do; at thousands a second it would be what is measured. What
this one can do shows against an engine that answers at once, with nothing in between.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httptools

from engine_agent.process.commands import loop_factory

ANSWER_SECONDS = 120.0
T = TypeVar("T")


class BadAnswer(Exception):
    """Other than what was to be measured."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where requests go, and what each of them says of who sends it."""

    url: str
    headers: Mapping[str, str]
    process: int = 0  # whose door it is

    def request(self, body: bytes) -> bytes:
        """One chat, whole as it goes over the wire."""
        told = {"host": urlsplit(self.url).netloc, "content-type": "application/json", **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        return b"POST /v1/chat/completions HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (
            head.encode(),
            len(body),
            body,
        )


class Client(asyncio.Protocol):
    """One connection, on which each request follows the answer to the last."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._answered: asyncio.Future[float] | None = None
        self._body = bytearray()

    async def ask(self, request: bytes) -> float:
        """Seconds until the last byte of its answer. Raises BadAnswer."""
        self._answered = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body.clear()
        began = time.perf_counter()
        self._transport.write(request)
        return await self._answered - began

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, problem: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(BadAnswer(f"the connection ended: {problem}"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        assert self._answered is not None
        status = self._parser.get_status_code()
        if status == 200:
            self._answered.set_result(time.perf_counter())
        else:
            self._answered.set_exception(BadAnswer(f"{status}: {bytes(self._body[:500])!r}"))


@asynccontextmanager
async def clients(door: Door, count: int) -> AsyncIterator[Sequence[Client]]:
    loop, place = asyncio.get_running_loop(), urlsplit(door.url)
    host, port = place.hostname or "", place.port or 80
    opened = [(await loop.create_connection(Client, host, port))[1] for _ in range(count)]
    try:
        yield opened
    finally:
        for client in opened:
            client.close()


async def hammer(door: Door, bodies: Sequence[bytes], *, together: int, seconds: float) -> list[float]:
    """So many clients, each asking again as soon as it is answered, for so long: seconds that each request took."""
    requests, taken = [door.request(body) for body in bodies], list[float]()
    ends_at = time.perf_counter() + seconds

    async def keep_asking(client: Client, number: int) -> None:
        while time.perf_counter() < ends_at:
            taken.append(await client.ask(requests[number % len(requests)]))
            number += together

    async with (
        asyncio.timeout(seconds + ANSWER_SECONDS),
        clients(door, together) as opened,
        asyncio.TaskGroup() as group,
    ):
        for number, client in enumerate(opened):
            group.create_task(keep_asking(client, number))
    return taken


async def in_turn(doors: Sequence[Door], bodies: Sequence[bytes], *, pause: float = 0.0) -> list[list[float]]:
    """Each body to each door, one after the other; who goes first changes. Seconds by door. `pause`: between bodies."""
    taken: list[list[float]] = [[] for _ in doors]
    async with asyncio.timeout(ANSWER_SECONDS), AsyncExitStack() as opened:
        each = [(await opened.enter_async_context(clients(door, 1)))[0] for door in doors]
        for number, body in enumerate(bodies):
            for turn in range(len(doors)):
                place = (turn + number) % len(doors)
                taken[place].append(await each[place].ask(doors[place].request(body)))
            await asyncio.sleep(pause)
    return taken


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)
