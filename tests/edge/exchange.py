"""One case on one raw socket: carries out its steps, and reads every answer that arrives."""

import asyncio
import contextlib
import http.client
import io
import re
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.edge.steps import ANSWERED, CONTINUED, DRIP_SECONDS, FIN, PAUSE, PAUSE_SECONDS, RESET, Drip, End, Step

PATIENCE_SECONDS = 45.0  # far more than any case takes
QUIET_SECONDS = 2.0  # after which a proxy is believed to wait for more
PROBE = b"GET <ok> HTTP/1.1\r\nHost: <host>\r\nConnection: close\r\n\r\n"
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_INTERIM = re.compile(rb"HTTP/1\.1 100 [^\r\n]*\r\n\r\n")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """`end` is what the server did with the connection; `port` is the client's, by which the server's end is known."""

    answers: Sequence[Answer]
    end: End
    port: int
    interim: int = 0
    problem: str = ""

    @property
    def statuses(self) -> tuple[int, ...]:
        return tuple(answer.status for answer in self.answers)


class _Arrived(io.BytesIO):
    """What http.client takes for a socket's file, and does not close."""

    def makefile(self, mode: str) -> "_Arrived":
        return self

    def close(self) -> None:
        pass


def answers_read(data: bytes, *, is_head: bool) -> tuple[list[Answer], str]:
    """All complete answers, and what is wrong with what follows them ("" where nothing follows)."""
    arrived, answers = _Arrived(_INTERIM.sub(b"", data)), list[Answer]()
    while arrived.tell() < len(arrived.getvalue()):
        method = "HEAD" if is_head and not answers else "GET"
        answer = http.client.HTTPResponse(arrived, method=method)  # type: ignore[arg-type]
        try:
            answer.begin()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            answers.append(Answer(answer.status, headers, answer.read()))
        except (http.client.HTTPException, ValueError) as problem:
            return answers, f"an answer that is not whole: {problem!r}"
    return answers, ""


class Exchange:
    """A client that does what a case says, and then waits for the server to close, or asks once more."""

    def __init__(self, near: socket.socket, values: Mapping[bytes, bytes], *, is_head: bool) -> None:
        self._near, self._values, self._is_head = near, values, is_head
        self._loop = asyncio.get_running_loop()
        self._data, self._is_over, self._was_reset = b"", False, False
        self._due = 0  # answers that were waited for

    async def carried_out(self, steps: Sequence[Step], end: End, *, count: int) -> Outcome:
        """`count`: of answers that are expected."""
        port, is_over = int(self._near.getsockname()[1]), False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._all(steps, end, count)
                is_over = True
        answers, problem = answers_read(self._data, is_head=self._is_head)
        seen = self._end(end, answers) if is_over else "left open"
        return Outcome(answers, seen, port, len(_INTERIM.findall(self._data)), problem)

    async def through_proxy(self, steps: Sequence[Step]) -> Outcome:
        """Asks once more at the end: a proxy may keep what a server would close, and wait where it would answer."""
        port = int(self._near.getsockname()[1])
        for step in steps:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._do(step)
        if RESET not in steps:
            await self._until_over(count=1)
            await self._send(PROBE)
            await self._until_over(count=0)
            await self._do(FIN)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not self._is_over:
                    await self._receive()
        answers, problem = answers_read(self._data, is_head=self._is_head)
        return Outcome(answers, "closes", port, problem=problem)

    async def _until_over(self, *, count: int) -> None:
        """Or until there are so many answers, or it has been quiet for too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                while not self._is_over:
                    if count and len(answers_read(self._data, is_head=self._is_head)[0]) >= count:
                        return
                    await self._receive()

    async def _all(self, steps: Sequence[Step], end: End, count: int) -> None:
        for step in steps:
            await self._do(step)
        if end == "stays":
            await self._answers_wait(count)
            await self._send(PROBE)
        while end != "left" and not self._is_over:
            await self._receive()

    def _end(self, expected: End, answers: list[Answer]) -> End:
        if expected == "left":
            return "left"
        if expected == "stays" and answers and answers[-1].status == 200 and len(answers) > 1:
            answers.pop()
            return "stays"
        return "resets" if self._was_reset else "closes"

    async def _do(self, step: Step) -> None:
        if isinstance(step, bytes):
            await self._send(step)
        elif isinstance(step, Drip):
            await self._drip(step)
        elif step is ANSWERED:
            self._due += 1
            await self._answers_wait(self._due)
        elif step is CONTINUED:
            while not self._is_over and not _INTERIM.search(self._data):
                await self._receive()
        elif step is PAUSE:
            await asyncio.sleep(PAUSE_SECONDS)
        elif step is FIN:
            with contextlib.suppress(OSError):
                self._near.shutdown(socket.SHUT_WR)
        elif step is RESET:
            self._near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)

    async def _send(self, data: bytes) -> None:
        for token, value in self._values.items():
            data = data.replace(token, value)
        with contextlib.suppress(ConnectionError):  # it may have been refused by now, and then it reads why
            await self._loop.sock_sendall(self._near, data)

    async def _drip(self, drip: Drip) -> None:
        """Until the server has said something, or closed."""
        hearing = asyncio.create_task(self._receive())
        try:
            while not hearing.done():
                await self._send(drip.data)
                await asyncio.wait({hearing}, timeout=DRIP_SECONDS)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _answers_wait(self, count: int) -> None:
        while not self._is_over and len(answers_read(self._data, is_head=self._is_head)[0]) < count:
            await self._receive()

    async def _receive(self) -> None:
        try:
            data = await self._loop.sock_recv(self._near, 262_144)
        except ConnectionError:
            self._is_over = self._was_reset = True
            return
        self._data += data
        self._is_over = not data


@asynccontextmanager
async def connected(
    address: tuple[str, int], values: Mapping[bytes, bytes], *, is_head: bool = False
) -> AsyncIterator[Exchange]:
    with socket.socket() as near:
        near.setblocking(False)
        await asyncio.get_running_loop().sock_connect(near, address)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Exchange(near, values, is_head=is_head)


def deaf(address: tuple[str, int], request: bytes) -> socket.socket:
    """A client that has asked and reads nothing. Segments and buffers are small, so that little is on its way."""
    near = socket.socket()
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    near.connect(address)
    near.sendall(request)
    return near


async def exchange(
    address: tuple[str, int],
    steps: Sequence[Step],
    end: End,
    values: Mapping[bytes, bytes],
    *,
    count: int = 1,
    is_head: bool = False,
) -> Outcome:
    async with connected(address, values, is_head=is_head) as client:
        return await client.carried_out(steps, end, count=count)
