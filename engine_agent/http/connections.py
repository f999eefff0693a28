"""A client's connection as uvicorn handles it, with limits that uvicorn lacks.

A request's head arrives soon and is short, only a body may be long, and a client has one request at a time: if it sends
another early, it gets the first answer, and then the connection closes. A body keeps moving and ends in time, a trailer
never counts as a header, and only a request without a body becomes a WebSocket.
"""

import asyncio
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from engine_agent.http.client import as_json
from engine_agent.http.connection_limits import ConnectionLimits, OpenConnections
from engine_agent.http.errors import ApiError, invalid, unavailable
from engine_agent.http.headers import request_id_accept
from engine_agent.http.heads import head_problem

MOST_HEAD_BYTES = 65_536  # also between two parts of a body, or after it
MOST_HEADERS = 256  # applications join the values of repeated names, in time that grows with the square of their number
PROGRESS_SECONDS, PROGRESS_BYTES = 10.0, 10_240  # the least that a body brings in so many seconds
MOST_CHUNKS, CHUNK_BYTES = 1_024, 64  # per body, plus one for so many of its bytes: a chunk costs as much as a header
DISCARD_SECONDS = 10.0  # time limit for the rest of a request that was refused early
MOST_DISCARDED_BYTES = 16 * 2**20
FIRST_LOOK_SECONDS, MOST_LOOK_SECONDS = 0.005, 0.25  # time between checks whether a half-closed client still listens
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MOST_TURNED_AWAY = 64  # connections over the limit that get an error at the same time; others are just closed
REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_FRAMING = (b"content-length", b"transfer-encoding")


class Refusal(NamedTuple):
    """An error in the form that a client gets."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


def openai_refusal(error: ApiError, request_id: str) -> Refusal:
    return Refusal([(b"content-type", b"application/json")], as_json(error.body))


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds for a request's head, from the connection's start or the head's first byte, and for its body."""

    head_seconds: float = 30.0
    body_seconds: float = 60.0


class Config(uvicorn.Config):
    """Connections beyond the limits get 503, a few at a time. `refusal` formats errors that no application sees."""

    def __init__(
        self,
        app: Any,
        *,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 (frozen)
        deadlines: Deadlines = Deadlines(),
        refusal: Callable[[ApiError, str], Refusal] = openai_refusal,
        **more: Any,
    ) -> None:
        super().__init__(app, **more)
        self.open_connections = OpenConnections(limits)
        self.deadlines, self.refusal = deadlines, refusal
        self.turned_away: set[Connection] = set()


class Connection(HttpToolsProtocol):
    config: Config

    def __init__(self, config: Config, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._open, self._turned_away = config.open_connections, config.turned_away
        self._is_counted = False
        self._fault: ApiError | None = None  # why a callback stopped the parser
        self._body_watch: asyncio.TimerHandle | None = None  # set while a body arrives
        self._body_ends_at = 0.0
        self._progress_bytes = 0  # bytes of the body since the last check
        self._is_unread = False  # whether the application may not have read, at the last check
        self._body_bytes = self._chunks = 0
        self._waiting: asyncio.TimerHandle | None = None  # set while a head is expected
        self._discarding: asyncio.TimerHandle | None = None  # set while an unwanted body is read
        self._looking: asyncio.TimerHandle | None = None  # set while a client that ended its side still listens
        self._beside_bytes = 0  # bytes outside a body, since its last byte
        self._discarded_bytes = 0
        self._is_body_due = False
        self._is_deaf = False
        self._is_upgrading = False  # True while a head is replayed that the application already has
        self._early = b""  # received after the whole answer, while the application still ends it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        problem = self._open.problem(self._address)
        if problem is not None:
            self._turn_away(problem)
            return
        self._open.add(self._address)
        self._is_counted = True
        self._expect_head()

    @property
    def _address(self) -> str | None:
        return self.client[0] if self.client else None

    def _turn_away(self, problem: str) -> None:
        """Refuse a connection over the limit, without counting it."""
        self.connections.discard(self)
        if len(self._turned_away) >= MOST_TURNED_AWAY:
            self.transport.abort()
            return
        self._turned_away.add(self)
        self._refuse(unavailable(problem, "overloaded"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._turned_away.discard(self)
        if self._is_counted:
            self._open.remove(self._address)
            self._is_counted = False
        for timer in (self._waiting, self._discarding, self._looking, self._body_watch):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()  # uvicorn leaves it after a reset, which kept the last request for 75 s
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.transport = self.transport  # breaks a reference cycle

    @property
    def _is_busy(self) -> bool:
        """Return whether a request is running, or its answer is not read yet."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and (not cycle.response_complete or self.flow.write_paused)

    @property
    def _is_answer_sent(self) -> bool:
        """Return whether the client has its whole answer, although the application has not ended it.

        HEAD, 204 and 304 have no body, and a streaming response sends its empty last message later.
        """
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not (cycle.response_started and cycle.keep_alive):
            return False
        is_whole = not cycle.chunked_encoding and cycle.expected_content_length == 0
        return (is_whole or cycle.scope["method"] == "HEAD") and not self.flow.write_paused

    @property
    def is_unfinished(self) -> bool:
        """Return whether a client waits for an answer, or may not have read all of its last one."""
        return self._is_busy or self._discarding is not None or self.transport.is_closing()

    def retire(self) -> None:
        """Close after the current answer, or now if idle. If a head is due, close after the answer to it."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
        elif self._waiting is None and self._discarding is None:
            self.transport.close()

    # Receiving

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            self._discard(len(data))
            return
        if self._is_answer_sent and not self._is_body_due:
            self.flow.pause_reading()
            self._early += data
            return
        self._unset_keepalive_if_required()
        if self._discarding is not None:
            self._discard(len(data))
        self._hear(memoryview(data))
        self._stay()

    def _hear(self, data: memoryview) -> None:
        """Parse data, but at most as many bytes as a head has left."""
        while len(data) > 0 and not self._is_deaf and not self.transport.is_closing():
            remaining_bytes = MOST_HEAD_BYTES - self._beside_bytes
            if remaining_bytes > 0:
                self._feed(data[:remaining_bytes])
                data = data[remaining_bytes:]
            else:
                self._refuse(_head_too_large(f"{MOST_HEAD_BYTES:,} bytes"))

    def _feed(self, data: memoryview) -> None:
        self._beside_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            not_http = invalid(None, "The request is not HTTP as this server speaks it.", "invalid_http")
            self._refuse(self._fault or not_http)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether to stay open: a client that ends its side may still listen, and then gets its answer first."""
        if not self._is_busy or self._is_body_due or self.cycle.scope["http_version"] == "1.0":
            return False
        self._hear_no_more()
        if not self.cycle.response_started:
            self.transport.write(CONTINUE)  # if the client is gone, its machine answers this with a reset
        self._look(FIRST_LOOK_SECONDS)
        return True

    def _parse(self, data: memoryview) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._is_deaf = True  # from here on the WebSocket's protocol receives; this connection still counts
                self.handle_websocket_upgrade()
            else:
                self._stay_with_http(data[upgrade.args[0] :])

    def _stay_with_http(self, remaining_data: memoryview) -> None:
        """Ignore a request to change the protocol. The parser would read no body after it, so replace the parser."""
        framing = b"".join(b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING)
        self.parser = httptools.HttpRequestParser(self)
        self._is_upgrading = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
        self._is_upgrading = False
        self._parse(remaining_data)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._is_upgrading:
            return
        if self._is_busy:
            raise RuntimeError("a request before the last one was answered")  # stops the parser; no client sees it
        self._expect_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_upgrading:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._waiting is None:
            return  # a trailer, which has no meaning here
        if len(self.headers) >= MOST_HEADERS:
            raise self._faulty(_head_too_large(f"{MOST_HEADERS} headers"))
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        if self._is_upgrading:
            return
        self._head_is_here()
        self._beside_bytes = self._discarded_bytes = self._body_bytes = self._chunks = 0
        if problem := head_problem(self.parser.get_http_version(), self.headers):
            raise self._faulty(invalid(None, problem, "invalid_http"))
        if self._is_websocket and any(_announces_body(*header) for header in self.headers):
            raise self._faulty(invalid(None, "A request that becomes a WebSocket has no body.", "upgrade_with_body"))
        super().on_headers_complete()
        self._is_body_due = not (self._is_websocket and self._should_upgrade())

    @property
    def _is_websocket(self) -> bool:
        return bool(self.parser.should_upgrade()) and self._get_upgrade() == b"websocket"

    def _faulty(self, error: ApiError) -> Exception:
        """Keep the error for the client, and return it, to be raised as an exception that stops the parser."""
        self._fault = error
        return error

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MOST_CHUNKS + self._body_bytes // CHUNK_BYTES:
            problem = f"The chunks of a body have at least {CHUNK_BYTES} bytes each, after the first {MOST_CHUNKS:,}."
            raise self._faulty(invalid(None, problem, "chunks_too_small"))

    def on_body(self, body: bytes) -> None:
        self._beside_bytes = 0
        self._body_bytes += len(body)
        self._progress_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # its body has not even begun
        self._is_body_due = False
        self._unwatch_body()
        if self._discarding is not None:
            self._discarding.cancel()
            self._discarding = None
        if not self.parser.should_keep_alive():  # a trailer can cause this; the parser then reads no more
            self.cycle.keep_alive = False
        super().on_message_complete()

    # Answering

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.transport = _AnswerTransport(self.transport, self._end)
        application = without_chunks(cycle, app) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, self._giving_up(cycle, application))

    def _giving_up(self, cycle: RequestResponseCycle, app: Any) -> Any:
        """Wrap the application: if its answer ends early because the client does not read, drop the connection."""

        async def answered(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)
            if cycle.response_started and not cycle.response_complete and self.flow.write_paused:
                cycle.disconnected = True  # otherwise uvicorn would report a mistake of the application
                self.transport.abort()

        return answered

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unwatch_body()
        if self.transport.is_closing():
            return
        if self._is_body_due and self._discarding is None:
            self._discarding = self.loop.call_later(DISCARD_SECONDS, self.transport.close)
        early_data, self._early = self._early, b""
        if early_data:
            self.data_received(early_data)

    def _end(self) -> None:
        """Close the connection after its last answer, without a reset, which would lose that answer."""
        if self._is_body_due:
            self._is_deaf = True
            self._unwatch_body()
            self._say_no_more()
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Send an error that no application handles, unless another answer is running."""
        if self.cycle.response_started if self._is_body_due else self._is_busy:
            self._hear_no_more()
            return
        self._head_is_here()
        self._unwatch_body()
        self._is_deaf = True
        if self._is_body_due:
            self._leave_application()
        request_id = request_id_accept(None)
        refusal = self.config.refusal(error, request_id)
        headers = [
            *refusal.headers,
            *((name.encode(), value.encode()) for name, value in error.headers.items()),
            (b"content-length", b"%d" % len(refusal.body)),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        start = b"HTTP/1.1 %d %b\r\n" % (error.status, REASONS[error.status])
        self.transport.write(start + lines + b"\r\n" + refusal.body)
        self._say_no_more()

    def _leave_application(self) -> None:
        """Make the application see that its client has left."""
        self.cycle.disconnected = True
        self.cycle.message_event.set()

    def _say_no_more(self) -> None:
        """Half-close, then read for a while: closing with unread bytes would reset, and lose the answer."""
        self._discarded_bytes = 0
        if not self.transport.is_closing() and self._discarding is None:
            self.flow.resume_reading()
            self.transport.write_eof()
            self._discarding = self.loop.call_later(DISCARD_SECONDS, self.transport.close)

    def _discard(self, count: int) -> None:
        self._discarded_bytes += count
        if self._discarded_bytes > MOST_DISCARDED_BYTES:
            self.transport.close()

    def _hear_no_more(self) -> None:
        """Ignore further bytes, and close the connection after the current answer."""
        self._is_deaf = True
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.transport.close()

    # Time limits

    def _expect_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.config.deadlines.head_seconds, self._give_up)

    def _head_is_here(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._refuse(_too_slow(f"A request's head has to come within {self.config.deadlines.head_seconds:g} s."))

    def _watch_body(self) -> None:
        self._body_ends_at, self._is_unread = self.loop.time() + self.config.deadlines.body_seconds, False
        self._expect_progress()

    def _expect_progress(self) -> None:
        self._progress_bytes, now = 0, self.loop.time()
        seconds = max(MOST_LOOK_SECONDS, min(self._body_ends_at - now, PROGRESS_SECONDS))
        self._body_watch = self.loop.call_later(seconds, self._look_at_body, now)

    def _unwatch_body(self) -> None:
        if self._body_watch is not None:
            self._body_watch.cancel()
            self._body_watch = None

    def _look_at_body(self, last_look_at: float) -> None:
        """Refuse a body that is too slow. Time in which the application may not have read does not count."""
        now, was_unread = self.loop.time(), self._is_unread
        self._is_unread = self.flow.read_paused or self.cycle.waiting_for_100_continue
        if self._is_unread or was_unread:
            self._body_ends_at += now - last_look_at
            self._expect_progress()
        elif now < self._body_ends_at and self._progress_bytes >= PROGRESS_BYTES:
            self._expect_progress()
        elif self.cycle.response_started:  # too late for an error
            self._leave_application()
            self.transport.close()
        else:
            self._refuse(_too_slow(self._slow_body_problem))

    @property
    def _slow_body_problem(self) -> str:
        rate = f"{PROGRESS_BYTES:,} bytes each {PROGRESS_SECONDS:g} s"
        return f"A request's body has to come within {self.config.deadlines.body_seconds:g} s, and at least {rate}."

    def _stay(self) -> None:
        """Limit the wait for a body. Bytes without a request give a client no more time than silence."""
        if self._is_body_due and self._body_watch is None and not (self._is_deaf or self.cycle.response_complete):
            self._watch_body()
        if self._is_busy or self._is_body_due or self._is_deaf or self._waiting is not None:
            return
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _look(self, seconds: float) -> None:
        """Check for a reset, which goes unnoticed while there is nothing to read or to write."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), 0)  # reports errors only
        if poll.poll(0):
            self.transport.abort()
        elif not self.transport.is_closing():
            self._looking = self.loop.call_later(seconds, self._look, min(2 * seconds, MOST_LOOK_SECONDS))


class _AnswerTransport(asyncio.Transport):
    """The transport that uvicorn's cycle gets. It closes by calling `end`."""

    def __init__(self, transport: asyncio.Transport, end: Callable[[], None]) -> None:
        super().__init__()
        self._transport, self._end = transport, end

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._end()


def _head_too_large(most: str) -> ApiError:
    return ApiError(431, f"A request's head has at most {most}.", code="head_too_large")


def _too_slow(problem: str) -> ApiError:
    return ApiError(408, problem, code="request_timeout")


def _announces_body(name: bytes, value: bytes) -> bool:
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" \t0") != b"")


def without_chunks(cycle: RequestResponseCycle, app: Any) -> Any:
    """Send no chunks, which HTTP/1.0 lacks: a body without a length ends with the connection."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            cycle.chunked_encoding = False
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, sent)

    return answered
