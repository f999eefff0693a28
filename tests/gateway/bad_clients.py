"""Clients that send bad requests to a gateway, many at once, and what cannot be right about what they hear.

Whoever is slow is here as well: it drips its head or its body, is silent, or never reads its answer.
"""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httptools

from tests.gateway.bad_requests import Case, case

TOGETHER = 16
PATIENCE_SECONDS = 60.0  # for any answer: far more than it takes
NO_ANSWER = 0


class Heard:
    """Answers of one connection, as they arrive. Informational ones are none."""

    def __init__(self, *, has_body: bool = True) -> None:
        self.statuses: list[int] = []
        self.bodies: list[bytes] = []
        self._parser, self._has_body = httptools.HttpResponseParser(self), has_body
        self.is_whole = True

    def feed(self, data: bytes) -> None:
        """Raises httptools.HttpParserError."""
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.statuses.append(status)
            self.bodies.append(b"")
            self.is_whole = not self._has_body

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.is_whole = True

    def complaints(self) -> Iterator[str]:
        for status, body in zip(self.statuses, self.bodies, strict=True):
            if status >= 500:
                yield f"{status} {body[:200]!r}"
            elif status >= 400 and self._has_body and not _is_refusal(body):
                yield f"{status} in a shape that is not OpenAI's: {body[:200]!r}"
        if not self.is_whole:
            yield "an answer that has no end"


def _is_refusal(body: bytes) -> bool:
    try:
        error = json.loads(body)["error"]
        return bool(error["message"] and error["type"] and error["code"])
    except (ValueError, KeyError, TypeError):
        return False


@dataclass(slots=True)
class Run:
    """What came of it: how often which status, by kind of case; what could not be right."""

    seed: int
    cases: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.statuses.items() if status >= 500)

    def add(self, one: Case, heard: Heard, complaints: Sequence[str]) -> None:
        self.cases += 1
        self.kinds[one.kind] += 1
        self.statuses.update(heard.statuses or [NO_ANSWER])
        self.complaints += [f"seed {self.seed}, case {one.number}, {one.kind}: {found}" for found in complaints]


async def send_all(port: int, count: int, *, seed: int) -> Run:
    run, numbers = Run(seed), iter(range(count))

    async def some() -> None:
        for number in numbers:
            await _send(port, case(number, seed=seed), run)

    await asyncio.gather(*(some() for _ in range(TOGETHER)))
    return run


async def _send(port: int, one: Case, run: Run) -> None:
    heard, complaints = Heard(has_body=one.has_body), list[str]()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _exchanged(port, one, heard)
    except TimeoutError:
        complaints.append("it was left waiting")
    except httptools.HttpParserError as problem:
        complaints.append(f"an answer that is no HTTP: {problem}")
    if one.ending in ("listens", "says no more"):
        complaints += heard.complaints()
    if one.statuses is not None and (len(heard.statuses) != 1 or heard.statuses[0] not in one.statuses):
        complaints.append(f"answered {heard.statuses}, and only {sorted(one.statuses)} is right")
    run.add(one, heard, complaints)


async def _exchanged(port: int, one: Case, heard: Heard) -> None:
    async with connected(port) as (reader, writer):
        with contextlib.suppress(ConnectionError):  # who is refused early may find that it speaks to nobody
            for part in one.parts:
                writer.write(part)
                await writer.drain()
            if one.ending == "says no more":
                writer.write_eof()
        if one.ending == "resets":
            leave_hard(writer)
        if one.ending in ("closes", "resets"):
            return
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                heard.feed(data)
                if one.ending == "listens" and heard.statuses and heard.is_whole:
                    return


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


def leave_hard(writer: asyncio.StreamWriter) -> None:
    """With a reset, whatever was unread."""
    near: socket.socket = writer.get_extra_info("socket")
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# Slow ones


@dataclass(frozen=True, slots=True)
class Lingered:
    """Until the gateway had enough, or the test: then it is not `was_ended`."""

    seconds: float
    was_ended: bool
    statuses: tuple[int, ...]


async def linger(
    port: int, begin: bytes, until: asyncio.Event, *, drip: bytes = b"", every_seconds: float = 0.5
) -> Lingered:
    """Says `begin`, and then a byte every so often; listens."""
    began, heard = time.monotonic(), Heard()
    async with connected(port) as (reader, writer):
        dripping = asyncio.create_task(_drip(writer, begin, drip, every_seconds))
        hearing = asyncio.create_task(_hear(reader, heard))
        enough = asyncio.create_task(until.wait())
        await asyncio.wait({hearing, enough}, return_when=asyncio.FIRST_COMPLETED)
        was_ended = hearing.done()
        for task in (dripping, hearing, enough):
            task.cancel()
        await asyncio.gather(dripping, hearing, enough, return_exceptions=True)
    return Lingered(time.monotonic() - began, was_ended, tuple(heard.statuses))


async def _drip(writer: asyncio.StreamWriter, begin: bytes, drip: bytes, every_seconds: float) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(begin)
        while drip:
            await asyncio.sleep(every_seconds)
            writer.write(drip)
            await writer.drain()


async def _hear(reader: asyncio.StreamReader, heard: Heard) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            heard.feed(data)


async def unread(port: int, asked: bytes, until: asyncio.Event) -> None:
    """Asks, and reads nothing of a long answer until the test has seen enough."""
    near = socket.socket()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    near.setblocking(False)
    try:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(near, ("127.0.0.1", port))
        await loop.sock_sendall(near, asked)
        await until.wait()
    finally:
        near.close()
