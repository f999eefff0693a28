"""A relay between a proxy and a server that writes down what the proxy sent."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httptools


class _Requests:
    """Heads of requests in a stream of bytes, trailers apart."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._parser = httptools.HttpRequestParser(self)
        self._fields: list[tuple[str, str]] = []
        self._target, self._is_head = b"", True

    def feed(self, data: bytes) -> None:
        with contextlib.suppress(httptools.HttpParserUpgrade, httptools.HttpParserError):
            self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._fields, self._target, self._is_head = [], b"", True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_head:
            self._fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._is_head = False
        self.seen.append(Seen(self._parser.get_method().decode(), self._target.decode("latin-1"), self._fields))


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as a server gets it."""

    method: str
    target: str
    fields: Sequence[tuple[str, str]] = field(repr=False)

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.fields if each == name]


class Tap:
    """Listens on `port`."""

    def __init__(self, behind: int) -> None:
        self._behind, self._streams = behind, list[_Requests]()
        self._relays = set[asyncio.Task[None] | None]()  # asyncio itself does not keep them alive
        self.port = 0

    @property
    def seen(self) -> list[Seen]:
        return [request for stream in list(self._streams) for request in list(stream.seen)]

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        return server

    async def _relay(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        requests = _Requests()
        self._streams.append(requests)
        self._relays.add(asyncio.current_task())
        far, there = await asyncio.open_connection("127.0.0.1", self._behind)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(near, there, requests.feed))
                both.create_task(_copy(far, back, None))
        except* (ConnectionError, asyncio.CancelledError):  # one end was reset, or the tap ends
            pass
        finally:
            there.close()
            back.close()
            self._relays.discard(asyncio.current_task())


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Callable[[bytes], None] | None
) -> None:
    while data := await reader.read(262_144):
        if heard is not None:
            heard(data)
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


@contextmanager
def tapped(*behind: int) -> Iterator[list[Tap]]:
    """One before each of these ports, in a thread of their own."""
    taps = [Tap(port) for port in behind]
    started = queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def serve() -> None:
        stopping = asyncio.Event()
        servers = [await tap.start() for tap in taps]
        started.put((asyncio.get_running_loop(), stopping))
        await stopping.wait()
        for server in servers:
            server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, stopping = started.get(timeout=60)
    try:
        yield taps
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
