"""One connection to an engine: one request at a time. Its answer may begin before all of the request is sent."""

import asyncio
from collections.abc import Callable

import httptools

from engine_agent.gateway.calling.answer import Answer

SMALL_BYTES = 2**16  # a body of this size is sent in one piece with its head
SLICE_BYTES = 2**18
MOST_HEAD_BYTES = 2**16


class Connection(asyncio.Protocol):
    """An HTTP/1.1 connection. It calls `on_end` when it can no longer be used, whichever side ended it."""

    def __init__(self, on_end: Callable[["Connection"], None]) -> None:
        self.idle_since = 0.0  # time by the loop's clock; valid while the connection is in the pool
        self._on_end = on_end
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._answer: Answer | None = None  # the answer to the latest request
        self._headers: list[tuple[str, str]] = []
        self._head_bytes = 0
        self._is_framed = False  # the answer's headers define where its body ends
        self._is_sent = self._is_kept_alive = True
        self._is_writable = asyncio.Event()
        self._is_writable.set()

    @property
    def is_fresh(self) -> bool:
        """Return whether the connection can take another request."""
        done = self._answer is None or self._answer.is_whole
        return done and self._is_sent and self._is_kept_alive and not self._transport.is_closing()

    def ask(self, head: bytes, body: bytes) -> Answer:
        """Send a request and return its answer, still empty. A body that is not small is left to `send_rest`."""
        self._parser = httptools.HttpResponseParser(self)
        self._answer = answer = Answer(self._resume)
        self._headers, self._head_bytes, self._is_framed = [], 0, False
        self._is_sent = len(body) <= SMALL_BYTES
        if self._transport.is_closing():
            answer.fail("the connection ended before anything was asked")
        else:
            self._transport.write(head + body if self._is_sent else head)
        return answer

    async def send_rest(self, body: bytes) -> None:
        """Send what `ask` left, as fast as the engine reads it. Stop when the answer begins or the connection ends."""
        if self._is_sent or self._answer is None:
            return
        view = memoryview(body)
        for start in range(0, len(view), SLICE_BYTES):
            await self._is_writable.wait()
            if self._answer.has_head or self._answer.is_over:
                return
            self._transport.write(view[start : start + SLICE_BYTES])
        self._is_sent = True

    def close(self) -> None:
        """Close the connection, or abort it if a request is partly unsent: the rest is no longer needed."""
        if self._is_sent:
            self._transport.close()
        else:
            self._transport.abort()

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.is_over:  # there is no open request
            self._break("it speaks without having been asked")
            return
        if not answer.has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            self._break(f"no HTTP: {problem}")
            return
        if not answer.has_head and self._head_bytes > MOST_HEAD_BYTES:
            self._break(f"a head of more than {MOST_HEAD_BYTES:,} bytes")
        elif answer.is_full and not answer.is_over:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False  # the transport closes

    def connection_lost(self, problem: Exception | None) -> None:
        answer = self._answer
        if answer is not None and not answer.is_over:
            if answer.has_head and not self._is_framed and problem is None:
                answer.end()  # a body without a length ends with the connection
            else:
                answer.fail(str(problem) if problem else "the connection ended")
        self._is_kept_alive = False
        self._is_writable.set()
        self._on_end(self)

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.is_whole:
            raise ValueError("it speaks without having been asked")  # stops the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None and not self._answer.has_head:  # trailers after the body are ignored
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim status: the final head follows
            self._headers = []
            return
        assert self._answer is not None
        self._is_framed = any(name in ("content-length", "transfer-encoding") for name, _ in self._headers)
        self._is_kept_alive = self._parser.should_keep_alive()
        self._answer.begin(status, self._headers)
        self._is_writable.set()  # wakes `send_rest`, which then stops

    def on_body(self, body: bytes) -> None:
        assert self._answer is not None
        self._answer.add(body)

    def on_message_complete(self) -> None:
        assert self._answer is not None
        if self._answer.has_head:
            self._answer.end()

    def _resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _break(self, why: str) -> None:
        if self._answer is not None:
            self._answer.fail(why)
        self._is_kept_alive = False
        self._transport.abort()
