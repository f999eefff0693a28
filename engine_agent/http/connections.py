"""A client's connection as uvicorn handles it, with bounds it lacks.

A request's head comes soon and is short, nothing but a body is long, and one request is answered before the next is
heard: whoever speaks meanwhile is answered the first, and then the connection closes.
"""

import asyncio
import select
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from engine_agent.http.client import as_json
from engine_agent.http.errors import ApiError, invalid, unavailable
from engine_agent.http.headers import request_id_accept

HEAD_SECONDS = 30.0  # from the connection's first moment, or the request's first byte
MOST_HEAD_BYTES = 65_536  # and as many between two parts of a body, or behind it
DISCARD_SECONDS = 10.0  # for the rest of what was refused before it was read
MOST_DISCARDED_BYTES = 16 * 2**20
FIRST_LOOK_SECONDS, MOST_LOOK_SECONDS = 0.005, 0.25  # at who says no more: whether it still listens
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MOST_TURNED_AWAY = 64  # connections too many that are told so, at once; of more, nobody is told
REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_FRAMING = (b"content-length", b"transfer-encoding")


class Config(uvicorn.Config):
    """`most_connections` are served at once, where that is given; those beyond are told so, a few at a time."""

    def __init__(self, app: Any, *, most_connections: int | None = None, **more: Any) -> None:
        super().__init__(app, **more)
        self.most_connections = most_connections
        self.turned_away: set[Connection] = set()


class Connection(HttpToolsProtocol):
    def __init__(self, config: uvicorn.Config, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        # Served by any other configuration, it has no bound.
        self._most = config.most_connections if isinstance(config, Config) else None
        self._turned_away = config.turned_away if isinstance(config, Config) else set()
        self._waiting: asyncio.TimerHandle | None = None  # while a head is expected
        self._discarding: asyncio.TimerHandle | None = None  # while a body is read that nobody wants
        self._looking: asyncio.TimerHandle | None = None  # while a client listens and says no more
        self._beside_bytes = 0  # since the last of a body
        self._discarded_bytes = 0
        self._is_body_due = False
        self._is_deaf = False
        self._is_upgrading = False  # while a head is repeated, which everybody has heard

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._most is None or len(self.connections) <= self._most:
            self._expect_head()
        else:
            self._turn_away()

    def _turn_away(self) -> None:
        """It takes no place of those who are served."""
        self.connections.discard(self)
        if len(self._turned_away) >= MOST_TURNED_AWAY:
            self.transport.abort()
            return
        self._turned_away.add(self)
        self._refuse(unavailable("More connections are open than this server has room for.", "overloaded"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._turned_away.discard(self)
        for timer in (self._waiting, self._discarding, self._looking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @property
    def _is_busy(self) -> bool:
        """A request is under way, or what it was answered is not read yet."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and (not cycle.response_complete or self.flow.write_paused)

    @property
    def is_unfinished(self) -> bool:
        """Whether a client waits here for an answer, or for the rest of one."""
        return self._is_busy or self.transport.is_closing()

    def retire(self) -> None:
        """End with the current answer, or now if idle. Where a head is due, the answer to that request ends it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif self._waiting is None and self._discarding is None:
            self.transport.close()

    # What it says

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        self._beside_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(invalid(None, "The request is not HTTP as this server speaks it.", "invalid_http"))
        if self._beside_bytes > MOST_HEAD_BYTES and not self._is_deaf:
            self._refuse(
                ApiError(431, f"A request's head has at most {MOST_HEAD_BYTES:,} bytes.", code="head_too_large")
            )
        self._stay()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whoever says no more may still listen: then it gets its answer, and only then the connection closes."""
        if not self._is_busy or self._is_body_due or self.cycle.scope["http_version"] == "1.0":
            return False
        self._hear_no_more()
        if not self.cycle.response_started:
            self.transport.write(CONTINUE)  # a machine where nobody listens answers with a reset
        self._look(FIRST_LOOK_SECONDS)
        return True

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay_with_http(data[upgrade.args[0] :])

    def _stay_with_http(self, rest: bytes) -> None:
        """A wish for another protocol may be ignored, but the parser reads no body behind it. A fresh one does."""
        framing = b"".join(b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING)
        self.parser = httptools.HttpRequestParser(self)
        self._is_upgrading = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
        self._is_upgrading = False
        self._parse(rest)

    # What the parser hears

    def on_message_begin(self) -> None:
        if self._is_upgrading:
            return
        if self._is_busy:
            raise RuntimeError("a request before the last one was answered")  # ends the parser, and is told nobody
        self._expect_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_upgrading:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._waiting is not None:  # else it comes behind a body, where it means nothing
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_upgrading:
            return
        self._head_is_here()
        self._beside_bytes = self._discarded_bytes = 0
        self._is_body_due = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside_bytes = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._discard(len(body))

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # its body has not even begun
        self._is_body_due = False
        if self._discarding is not None:
            self._discarding.cancel()
            self._discarding = None
        super().on_message_complete()

    # What it is told

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        told = without_chunks(cycle, app) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, self._giving_up(cycle, told))

    def _giving_up(self, cycle: RequestResponseCycle, app: Any) -> Any:
        """Of an answer that ends before its end because nobody reads it, nothing is kept for whoever might."""

        async def answered(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)
            if cycle.response_started and not cycle.response_complete and self.flow.write_paused:
                cycle.disconnected = True  # or it would be taken for a mistake of the application's
                self.transport.abort()

        return answered

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_body_due and not self.transport.is_closing():
            self._discarding = self.loop.call_later(DISCARD_SECONDS, self.transport.close)

    def _refuse(self, error: ApiError) -> None:
        """No application hears of it, so the answer is written here, unless another one is under way."""
        if self.cycle.response_started if self._is_body_due else self._is_busy:
            self._hear_no_more()
            return
        self._head_is_here()
        self._is_deaf = True
        if self._is_body_due:  # for the application its client has left
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = as_json(error.body)
        head = (
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-request-id: %b\r\nconnection: close\r\n\r\n"
        )
        request_id = request_id_accept(None).encode()
        self.transport.write(head % (error.status, REASONS[error.status], len(body), request_id) + body)
        self._say_no_more()

    def _say_no_more(self) -> None:
        """What is still being said is read for a while: a socket closed over unread bytes is reset, answer and all."""
        self._discarded_bytes = 0
        if not self.transport.is_closing() and self._discarding is None:
            self.transport.write_eof()
            self._discarding = self.loop.call_later(DISCARD_SECONDS, self.transport.close)

    def _discard(self, count: int) -> None:
        self._discarded_bytes += count
        if self._discarded_bytes > MOST_DISCARDED_BYTES:
            self.transport.close()

    def _hear_no_more(self) -> None:
        """The connection ends with the answer that is under way."""
        self._is_deaf = True
        self.cycle.keep_alive = False
        if self.cycle.response_complete:
            self.transport.close()

    # How long it is waited for

    def _expect_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _head_is_here(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._refuse(ApiError(408, f"A request's head has to come within {HEAD_SECONDS:g} s.", code="request_timeout"))

    def _stay(self) -> None:
        """Whoever has said something that began no request is not waited for longer than who is silent."""
        if self._is_busy or self._is_body_due or self._is_deaf or self._waiting is not None:
            return
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _look(self, seconds: float) -> None:
        """A reset is noticed by nobody while there is nothing to read or to write."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), 0)  # errors alone
        if poll.poll(0):
            self.transport.abort()
        elif not self.transport.is_closing():
            self._looking = self.loop.call_later(seconds, self._look, min(2 * seconds, MOST_LOOK_SECONDS))


def without_chunks(cycle: RequestResponseCycle, app: Any) -> Any:
    """HTTP/1.0 knows none: what has no length ends where the connection does."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            cycle.chunked_encoding = False
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, sent)

    return answered
