"""What a client can do to a connection before any application hears of it. Real sockets, uvicorn's own parser."""

import asyncio
import contextlib
import gc
import json
import logging
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from engine_agent.http import connections
from engine_agent.http.connection_limits import ConnectionLimits
from engine_agent.http.connections import CHUNK_BYTES, MOST_CHUNKS, MOST_HEAD_BYTES, MOST_HEADERS, Deadlines
from engine_agent.http.listening import bind_tcp
from engine_agent.http.serving import Server, server_of
from tests.gateway.bad_clients import leave_hard
from tests.support.waiting import wait_until_async

PATIENCE_SECONDS = 0.5
SLOW_SECONDS = 0.1  # of an answer, so that more is said before it is there
Exchange = Callable[..., Awaitable[bytes]]
FIRST = b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
LARGE_BODY = [b"z" * 65_536] * 64  # more than sockets hold
LARGE_BYTES = 64 * 65_536
LARGE_HEAD = b"POST %b\r\nhost: x\r\ncontent-length: 4194304\r\n%b\r\n"
HEARD, END, PAUSE = object(), object(), object()  # wait for an answer of five bytes, or a go-ahead; say no more; wait


async def hello(scope: Any, receive: Any, send: Any) -> None:
    body = b"hello"
    if scope["path"] == "/fails":
        raise RuntimeError("before the body was read")
    if scope["path"] == "/ends-late":
        await end_late(int(scope["query_string"]), send)
        return
    if scope["path"] == "/late":
        await asyncio.sleep(2 * PATIENCE_SECONDS)
    if scope["path"] != "/refused":
        told = await read(receive)
        body = told[:5].ljust(5, b"_") if scope["path"] == "/echo" else body
    if scope["path"] == "/slow":
        await asyncio.sleep(SLOW_SECONDS)
    if scope["path"] == "/flood":
        await flood(send)
        return
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})
        return
    closing = [(b"connection", b"close")] if scope["query_string"] == b"close" else []
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5"), *closing]})
    await send({"type": "http.response.body", "body": body})


async def end_late(status: int, send: Any) -> None:
    """As a streaming response: the last message is empty, and comes when the client has its whole answer."""
    headers = [(b"content-length", b"5")] if status == 200 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if status == 200:
        await send({"type": "http.response.body", "body": b"hello", "more_body": True})
    await asyncio.sleep(SLOW_SECONDS)
    await send({"type": "http.response.body"})


async def flood(send: Any) -> None:
    """Until nobody takes any more, and then it gives up."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(SLOW_SECONDS):
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})


async def read(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For those that wait for the server to lose its patience; the others must not lose it on a busy machine."""
    monkeypatch.setattr(connections, "DISCARD_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
async def serving(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Server, int]]:
    """With its port."""
    is_impatient = "impatience" in request.fixturenames
    server = server_of(hello, deadlines=Deadlines(PATIENCE_SECONDS, PATIENCE_SECONDS) if is_impatient else Deadlines())
    async with running(server) as port:
        yield server, port


@contextlib.asynccontextmanager
async def running(server: Server) -> AsyncIterator[int]:
    """With its port."""
    listening: socket.socket = bind_tcp("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await server.is_up.wait()
    yield listening.getsockname()[1]
    serving.cancel()
    await asyncio.wait({serving})
    await shut_down(server, listening)


async def shut_down(server: Server, listening: socket.socket) -> None:
    """As uvicorn does, which looks only every 0.1 s whether it should, and whether all have ended: 70 times here."""
    for listener in server.servers:
        listener.close()
    listening.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    await wait_until_async(lambda: not server.server_state.connections and not server.server_state.tasks)
    for listener in server.servers:
        await listener.wait_closed()


@pytest.fixture
async def exchange(serving: tuple[Server, int]) -> Exchange:
    """Sends parts, and reads until the server closes."""
    _, port = serving

    async def exchanged(*parts: Any) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            answer = b""
            for part in parts:
                if part is END:
                    writer.write_eof()
                elif part is PAUSE:
                    await asyncio.sleep(PATIENCE_SECONDS / 4)
                elif part is HEARD:
                    head = await reader.readuntil(b"\r\n\r\n")
                    answer += b"" if b" 100 " in head else head + await reader.readexactly(5)
                else:
                    writer.write(part)
                    await writer.drain()
            return answer + await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()

    return exchanged


def code(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nx-request-id: " in head
    return int(head.split()[1]), json.loads(body)["error"]["code"]


@pytest.mark.usefixtures("impatience")
async def test_whoever_connects_and_says_nothing_is_not_waited_for(exchange: Exchange) -> None:
    assert code(await exchange()) == (408, "request_timeout")


@pytest.mark.usefixtures("impatience")
async def test_a_head_that_trickles_is_not_waited_for(exchange: Exchange) -> None:
    assert code(await exchange(b"GET / HTTP/1.1\r\nhost: x\r\n", b"accept: ")) == (408, "request_timeout")


@pytest.mark.parametrize("time", range(20))
async def test_who_is_refused_hears_it_whatever_it_was_still_saying(exchange: Exchange, time: int) -> None:
    """A socket closed over what nobody has read is reset, and the refusal is lost on its way."""
    endless = [b"x: %b\r\n" % (b"y" * 1_000)] * (70 + time)
    assert code(await exchange(b"GET / HTTP/1.1\r\nhost: x\r\n", *endless, b"z" * 400_000))[0] == 431


async def test_a_head_without_end_is_not_kept(exchange: Exchange) -> None:
    endless = [b"x-%d: %b\r\n" % (number, b"y" * 1_000) for number in range(70)]
    assert code(await exchange(b"GET / HTTP/1.1\r\nhost: x\r\n", *endless)) == (431, "head_too_large")


@pytest.mark.parametrize("extra", [0, 1])
async def test_head_limit_is_exact_in_one_segment(exchange: Exchange, extra: int) -> None:
    start, end = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: ", b"\r\n\r\n"
    head = start + b"y" * (MOST_HEAD_BYTES - len(start + end) + extra) + end
    answer = await exchange(head)
    assert code(answer) == (431, "head_too_large") if extra else answer.endswith(b"hello")


@pytest.mark.parametrize(("size", "is_taken"), [(CHUNK_BYTES, True), (1, False)])
async def test_small_chunks_are_limited(exchange: Exchange, size: int, is_taken: bool) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%b\r\n" % (size, b"z" * size)
    answer = await exchange(head, chunk * (2 * MOST_CHUNKS), b"0\r\n\r\n")
    assert answer.endswith(b"hello") if is_taken else code(answer) == (400, "chunks_too_small")


async def test_small_chunks_behind_an_answer_end_it(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "DISCARD_SECONDS", 3_600.0)
    head = b"POST /refused HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = await exchange(head, HEARD, b"1\r\nz\r\n" * (2 * MOST_CHUNKS))
    assert answer.endswith(b"hello")


async def test_header_count_is_limited(exchange: Exchange) -> None:
    start, lines = b"GET / HTTP/1.1\r\nhost: x\r\n", b"a:\r\n" * (MOST_HEADERS - 2)
    assert (await exchange(start + b"connection: close\r\n" + lines + b"\r\n")).endswith(b"hello")
    assert code(await exchange(start + b"a:\r\nb:\r\n" + lines + b"\r\n")) == (431, "head_too_large")


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x00\xa5\x01",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_told_so_in_openais_shape(exchange: Exchange, said: bytes) -> None:
    assert code(await exchange(said)) == (400, "invalid_http")


async def test_requests_that_follow_each_other_are_all_answered(exchange: Exchange) -> None:
    asked = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
    last = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100000\r\n\r\n"
    answer = await exchange(asked, HEARD, asked, HEARD, last, b"z" * 100_000)
    assert answer.count(b"hello") == 3


@pytest.mark.parametrize("second", [b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc", b"GET", b"\x16\x03"])
async def test_who_speaks_before_it_is_answered_is_answered_the_first_and_no_more(
    exchange: Exchange, second: bytes
) -> None:
    for parts in ([FIRST + second], [FIRST, second, b"z" * 200_000]):
        answer = await exchange(*parts)
        assert answer.count(b"HTTP/1.1") == 1
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.endswith(b"hello")


async def test_a_trailer_without_end_is_not_kept(exchange: Exchange) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    assert code(await exchange(head, HEARD, b"0\r\nx: ", *[b"y" * 1_000] * 70)) == (431, "head_too_large")


@pytest.mark.parametrize(
    "body", [b"content-length: 3\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"]
)
async def test_a_wish_for_another_protocol_is_ignored_and_the_body_is_read(exchange: Exchange, body: bytes) -> None:
    wish = b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n" + body
    goodbye = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    for parts in ([wish], [wish[:-4], wish[-4:]]):
        answer = await exchange(*parts, HEARD, goodbye)
        assert b"\r\n\r\nabc__" in answer
        assert answer.endswith(b"hello")


@pytest.mark.parametrize("framing", [b"content-length: 3\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"])
async def test_websocket_upgrade_with_body_is_refused(exchange: Exchange, framing: bytes) -> None:
    wish = b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\n" + framing
    assert code(await exchange(wish)) == (400, "upgrade_with_body")


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("part", [b"content-length: 9\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"])
async def test_unfinished_body_is_refused_in_time(exchange: Exchange, part: bytes) -> None:
    assert code(await exchange(b"POST / HTTP/1.1\r\nhost: x\r\n" + part)) == (408, "request_timeout")


async def test_body_without_progress_is_refused(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PROGRESS_SECONDS", PATIENCE_SECONDS)
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (2 * connections.PROGRESS_BYTES)
    assert code(await exchange(head, b"z" * (connections.PROGRESS_BYTES - 1))) == (408, "request_timeout")


async def test_body_with_progress_is_waited_for(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PROGRESS_SECONDS", 10 * PATIENCE_SECONDS / 4)  # of the 12 pauses
    monkeypatch.setattr(connections, "PROGRESS_BYTES", 1)
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 12\r\n\r\n"
    dripping = [part for _ in range(12) for part in (b"z", PAUSE)]
    assert (await exchange(head, *dripping)).endswith(b"hello")


@pytest.mark.usefixtures("impatience")
async def test_application_that_reads_late_blames_nobody(exchange: Exchange) -> None:
    """Nobody can send what is not taken, and who asks whether to send at all waits for the answer."""
    large = b"POST /late HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 300000\r\n\r\n"
    assert (await exchange(large, b"z" * 300_000)).endswith(b"hello")
    asking = b"POST /late HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    assert (await exchange(asking, HEARD, b"abc")).endswith(b"hello")


class Clock:
    """The loop's time, which can jump."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._jumped, real = 0.0, loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._jumped)

    async def jump(self, seconds: float) -> None:
        """And let each timer run that is due then."""
        self._jumped += seconds
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize(("looks", "status"), [(3, 200), (7, 408)])
async def test_body_deadline_rests_while_unread(monkeypatch: pytest.MonkeyPatch, looks: int, status: int) -> None:
    """The first look after that does not count either: of six more, each 10 s, the last is the end of 60 s."""
    may_read, received = asyncio.Event(), 0

    async def late(scope: Any, receive: Any, send: Any) -> None:
        nonlocal received
        await may_read.wait()

        async def counted() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        await hello({**scope, "path": "/"}, counted, send)

    async with running(server := server_of(late)) as port:
        clock = Clock(monkeypatch)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LARGE_HEAD % (b"/ HTTP/1.1", b"") + b"z" * 131_072)
        answer = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        await wait_until_async(lambda: any(is_paused(connection) for connection in server.server_state.connections))
        for _ in range(10):
            await clock.jump(connections.PROGRESS_SECONDS)
        may_read.set()
        for sent in range(131_072, 131_072 + looks * 65_536, 65_536):
            await wait_until_async(lambda: answer.done() or received == sent)  # noqa: B023
            writer.write(b"z" * 65_536)
            await wait_until_async(lambda: answer.done() or received == sent + 65_536)  # noqa: B023
            await clock.jump(connections.PROGRESS_SECONDS)
        writer.write(b"z" * (LARGE_BYTES - 131_072 - looks * 65_536))
        assert (await answer).startswith(b"HTTP/1.1 %d " % status)
        writer.close()


def is_paused(connection: Any) -> bool:
    return isinstance(connection, connections.Connection) and connection.flow.read_paused


async def test_who_says_no_more_is_answered(exchange: Exchange) -> None:
    assert (await exchange(FIRST, END)).endswith(b"hello")
    assert await exchange(b"GET / HTTP/1.1\r\nhost", END) == b""


async def test_http_1_0_hears_no_chunks(exchange: Exchange) -> None:
    head, _, body = (await exchange(b"GET /stream HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
    assert body == b"onetwo"
    assert b"chunked" not in head
    assert b"connection: close" in head


@pytest.mark.usefixtures("impatience")
async def test_the_rest_of_a_refused_body_is_read_for_a_while(exchange: Exchange) -> None:
    """So that who sends it comes to read the refusal. But not for ever, and not without end."""
    head = b"POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n"
    assert (await exchange(head + b"z" * 1_000, b"z" * 1_000)).endswith(b"hello")
    late = b"POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\na"
    assert (await exchange(late, HEARD, b"bc" + FIRST, END)).count(b"hello") == 2


EARLY_LAST_ANSWERS = pytest.mark.parametrize(
    ("line", "field", "status"),
    [
        (b"/refused?close HTTP/1.1", b"", 200),
        (b"/refused HTTP/1.1", b"connection: close\r\n", 200),
        (b"/refused HTTP/1.0", b"", 200),
        (b"/fails HTTP/1.1", b"", 500),
    ],
    ids=["closing", "close-requested", "http-1.0", "failed"],
)


@EARLY_LAST_ANSWERS
async def test_early_last_answer_survives_a_body(exchange: Exchange, line: bytes, field: bytes, status: int) -> None:
    answer = await exchange(LARGE_HEAD % (line, field), *LARGE_BODY)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b"hello" if status == 200 else b"Internal Server Error")


@pytest.mark.usefixtures("impatience")
@EARLY_LAST_ANSWERS
async def test_early_last_answer_ends_the_connection(
    serving: tuple[Server, int], line: bytes, field: bytes, status: int
) -> None:
    """Also where the client neither sends the rest nor closes."""
    server, port = serving
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(LARGE_HEAD % (line, field))
    async with asyncio.timeout(20):
        assert (await reader.read()).startswith(b"HTTP/1.1 %d " % status)
        await until_unconnected(server)
    writer.close()


async def test_body_behind_last_answer_is_limited(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "DISCARD_SECONDS", 3_600.0)
    monkeypatch.setattr(connections, "MOST_DISCARDED_BYTES", 1_000_000)
    with pytest.raises(ConnectionError):
        await exchange(LARGE_HEAD % (b"/refused?close HTTP/1.1", b""), *LARGE_BODY)


@pytest.mark.parametrize(("method", "status"), [(b"GET", 304), (b"GET", 204), (b"HEAD", 200), (b"GET", 200)])
@pytest.mark.parametrize("length", [5, 300_000])
async def test_request_behind_whole_answer_is_served(
    serving: tuple[Server, int], method: bytes, status: int, length: int
) -> None:
    """Whether or not the application has ended that answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", serving[1])
    for _ in range(2):
        writer.write(b"%b /ends-late?%d HTTP/1.1\r\nhost: x\r\n\r\n" % (method, status))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        if (method, status) == (b"GET", 200):
            assert await reader.readexactly(5) == b"hello"
        writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length + b"z" * length)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(5) == b"zzzzz"
    writer.close()


async def test_an_answer_that_nobody_reads_keeps_nothing(
    serving: tuple[Server, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever listens and does not read, would hold what was written for as long as it likes."""
    server, port = serving
    with socket.create_connection(("127.0.0.1", port)) as deaf, caplog.at_level(logging.ERROR):
        deaf.sendall(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(20):
            while not server.server_state.tasks:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await until_unconnected(server)
        assert caplog.messages == []


async def until_unconnected(server: Server) -> None:
    await wait_until_async(lambda: not server.server_state.connections)


HELLO = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Callers:
    def __init__(self, port: int) -> None:
        self._port, self._writers = port, list[asyncio.StreamWriter]()

    async def call(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        return reader, writer

    async def served(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.call()
        await again(reader, writer)
        return reader, writer

    async def is_served(self) -> bool:
        try:
            await self.served()
        except (AssertionError, ConnectionError, asyncio.IncompleteReadError):
            return False
        return True

    async def turned_away(self) -> bytes:
        reader, _ = await self.call()
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.wait_for(reader.read(), 20)
        return b""

    async def leave(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


async def again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO)
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")


@pytest.fixture
async def callers(request: pytest.FixtureRequest) -> AsyncIterator[Callers]:
    """Of whom two are served at once."""
    server = server_of(hello, limits=getattr(request, "param", ConnectionLimits(total=2)))
    async with running(server) as port:
        callers = Callers(port)
        yield callers
        await callers.leave()


@pytest.mark.parametrize(
    "callers", [ConnectionLimits(total=2), ConnectionLimits(per_address=2)], indirect=True, ids=["total", "per address"]
)
async def test_one_connection_too_many_is_told_so_and_the_others_are_served(callers: Callers) -> None:
    first, second = await callers.served(), await callers.served()
    assert code(await callers.turned_away()) == (503, "overloaded")
    await again(*first)
    await again(*second)


@pytest.mark.parametrize(
    "callers", [ConnectionLimits(total=2), ConnectionLimits(per_address=2)], indirect=True, ids=["total", "per address"]
)
async def test_who_leaves_makes_room(callers: Callers) -> None:
    first, second = await callers.served(), await callers.served()
    first[1].close()
    async with asyncio.timeout(20):
        while not await callers.is_served():  # until the server has noticed
            pass
    await again(*second)


async def test_of_very_many_too_many_nobody_is_told(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Telling takes a connection as well."""
    monkeypatch.setattr(connections, "MOST_TURNED_AWAY", 0)
    first, _ = await callers.served(), await callers.served()
    assert await callers.turned_away() == b""
    await again(*first)


async def test_a_reset_connection_keeps_nothing_in_memory(serving: tuple[Server, int]) -> None:
    server, port = serving
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
    (connection,) = server.server_state.connections
    kept = weakref.ref(connection)
    del connection
    leave_hard(writer)
    writer.close()
    async with asyncio.timeout(20):
        await until_unconnected(server)
    gc.collect()
    assert kept() is None
