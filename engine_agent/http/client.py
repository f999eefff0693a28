"""The client of one request: what it sends, what it receives, and whether it is still connected."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any, Protocol, TypeVar

from engine_agent.http.errors import ApiError
from engine_agent.http.headers import CORS, REQUEST_ID, request_id_accept

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[str, str]]
T = TypeVar("T")
EVENTS = "text/event-stream"


class ClientGone(Exception):
    """The client has left, or reads so slowly that it counts as gone."""


class Witness(Protocol):
    """Observes what a client is sent, and may add headers."""

    def begins(self, status: int, headers: "Headers") -> "Headers":
        """Return headers to add to the answer."""

    def passes(self, data: bytes) -> None:
        """Observe a part of the answer's body."""


class Client:
    def __init__(self, scope: Scope, receive: Receive, send: Send, *, write_seconds: float) -> None:
        self.headers = _headers(scope)
        self.query: bytes = scope.get("query_string", b"")
        self.host: str | None = (scope.get("client") or (None,))[0]  # the other end of the connection, perhaps a proxy
        self.request_id = request_id_accept(self.headers.get(REQUEST_ID))
        self.has_answer = False  # at least the first line was sent
        self.reads_events = False  # the answer is a stream of events
        self.is_for_browsers = True  # adds CORS headers; False without a key, or any web page could read it
        self.witness: Witness | None = None
        self._is_head = scope["method"] == "HEAD"
        self._receive, self._send = receive, send
        self._write_seconds = write_seconds
        self._leaving: asyncio.Task[None] | None = None
        self._is_staying = self._is_cancelling = False

    # Receiving

    async def chunk(self) -> tuple[bytes, bool]:
        """Return the next part of its body, and whether more will follow."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    # Noticing that it leaves, which works only after its body has been read

    @property
    def has_left(self) -> bool:
        return self._leaving is not None and self._leaving.done()

    async def staying(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. If the client leaves, cancel the work and raise ClientGone."""
        task = asyncio.current_task()
        assert task is not None
        self._leaving = asyncio.create_task(self._left())
        self._leaving.add_done_callback(partial(self._cancel, task))
        self._is_staying = True
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_cancelling and not task.uncancel():  # no other cancellation is pending
                raise ClientGone from None
            raise
        finally:
            self._is_staying = False
            self._leaving.cancel()

    def _cancel(self, work: "asyncio.Task[Any]", leaving: "asyncio.Task[None]") -> None:
        if not leaving.cancelled():
            leaving.exception()  # marked as retrieved: a client that cannot be heard has left as well
        if self._is_staying:
            self._is_cancelling = True
            work.cancel()

    async def _left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # Sending

    async def start(self, status: int, headers: Headers) -> None:
        self.has_answer = True
        sent_headers = list(headers)
        self.reads_events = any(name == "content-type" and value.startswith(EVENTS) for name, value in sent_headers)
        if self.witness is not None:
            sent_headers += self.witness.begins(status, sent_headers)
        sent_headers += [(REQUEST_ID, self.request_id), *(CORS if self.is_for_browsers else ())]
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent_headers]
        await self._sent({"type": "http.response.start", "status": status, "headers": encoded})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        if self.witness is not None:
            self.witness.passes(data)
        await self._sent({"type": "http.response.body", "body": b"" if self._is_head else data, "more_body": more})

    async def answer(self, status: int, data: bytes, headers: Headers) -> None:
        await self.start(status, [*headers, ("content-length", str(len(data)))])
        await self.write(data, more=False)

    async def answer_json(self, status: int, value: Any, headers: Headers = ()) -> None:
        await self.answer(status, as_json(value), [("content-type", "application/json"), *headers])

    async def refuse(self, error: ApiError, headers: Headers = ()) -> None:
        await self.answer_json(error.status, error.body, [*headers, *error.headers.items()])

    async def _sent(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._write_seconds):  # the server waits here while too much is unread
                await self._send(message)
        except (TimeoutError, OSError):
            raise ClientGone from None
        except RuntimeError:  # raised for a closed connection, but also for invalid messages
            if self.has_left:
                raise ClientGone from None
            raise


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _headers(scope: Scope) -> Mapping[str, str]:
    """Return the headers by lower-case name. Join repeated ones, as HTTP does, so that neither counts alone."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
