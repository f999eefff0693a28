"""Machines with an engine that vanish: nothing they held is closed, and nothing sent to them is answered any more.

One is a network namespace whose link goes down, where this machine may make one. The other is a proxy that stops
reading and writing, for everywhere else. Started as a program, this is the engine: its health is good, and no answer of
its ends.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[]}\n\n'
HALF = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
WELL = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
UNKNOWN = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
MOST_READ = 1 << 20  # of a body; a longer one is left unread


class Machine(Protocol):
    @property
    def url(self) -> str: ...

    def vanish(self) -> None: ...


# The engine


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"post "):
                writer.write(WELL if head.startswith(b"get /health ") else UNKNOWN)
                continue
            size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            asked = json.loads(await reader.readexactly(size))["prompt"] if size <= MOST_READ else ""
            writer.write({"stream": STREAM + b"%x\r\n%b\r\n" % (len(EVENT), EVENT), "whole": HALF}.get(asked, b""))
            await asyncio.Event().wait()


async def _serve(host: str, port: int) -> None:
    server = await asyncio.start_server(_talk, host, port)
    print("up", flush=True)
    await server.serve_forever()


@contextmanager
def _engine(host: str, port: int, *before: str) -> Iterator[None]:
    command = [*before, sys.executable, "-m", "tests.fleet.vanishing", host, str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"up\n"
            yield
        finally:
            process.kill()


# A proxy that stops


class _Proxy:
    def __init__(self, port: int) -> None:
        self._to = port
        self._port = free_port()
        self._loop = asyncio.new_event_loop()
        self._goes_on = True
        self._pairs: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="vanishing")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "_Proxy":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(self, *problem: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def vanish(self) -> None:
        async def stop() -> None:
            for writer in self._pairs:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            self._goes_on = False

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(30)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._pairs:
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pairs.append(writer)
        if not self._goes_on:
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._pairs.append(far_writer)
        with suppress(asyncio.CancelledError):  # at its end, of which the server would make an error
            await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if not self._goes_on:
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()
            writer.close()


@contextmanager
def proxied_machine() -> Iterator[Machine]:
    port = free_port()
    with _engine("127.0.0.1", port), _Proxy(port) as proxy:
        yield proxy


# A network namespace


@dataclass(frozen=True, slots=True)
class _Namespace:
    name: str
    url: str

    def vanish(self) -> None:
        """Its end of the link goes down: what is sent to it is lost, and nobody says so."""
        _ip("-n", self.name, "link", "set", "engine", "down")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def why_no_namespace() -> str:
    """Return why this machine can make none; empty where it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "a network namespace needs root and iproute2"
    name = f"luminet-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except subprocess.CalledProcessError as problem:
        return f"a network namespace cannot be made: {problem.stderr.strip()}"
    return ""


@contextmanager
def namespaced_machine() -> Iterator[Machine]:
    number = os.getpid() % 16_384
    name, link = f"luminet-{os.getpid()}", f"lm{os.getpid()}"
    network = f"10.213.{number // 64}.{4 * (number % 64)}"  # four addresses for each process of the tests
    ours, theirs = (f"{network.rpartition('.')[0]}.{int(network.rpartition('.')[2]) + host}" for host in (1, 2))
    port = free_port()
    with ExitStack() as opened:
        _ip("netns", "add", name)
        opened.callback(_ip, "netns", "del", name)  # and the link with it
        _ip("link", "add", link, "type", "veth", "peer", "name", "engine", "netns", name)
        _ip("addr", "add", f"{ours}/30", "dev", link)
        _ip("link", "set", link, "up")
        _ip("-n", name, "addr", "add", f"{theirs}/30", "dev", "engine")
        _ip("-n", name, "link", "set", "engine", "up")
        opened.enter_context(_engine(theirs, port, "ip", "netns", "exec", name))
        yield _Namespace(name, f"http://{theirs}:{port}")


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
