"""Identifies the caller of each request to vLLM's server, and holds back the answer's headers until its prompts are
admitted. So the headers report the hits before the first token, even in a stream. ASGI only.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from engine_agent.http.errors import ApiError
from engine_agent.vllm_front.ask import CURRENT, Ask, cache_headers
from engine_agent.vllm_front.whose import Caller

ADMIN = "/luminet/"
FIRST_ERROR = 400
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Whose = Callable[[Mapping[str, str]], Caller]


class Identified:
    """Requires a caller for POST requests and WebSockets. Requests that only read (GET) need none."""

    def __init__(self, app: App, *, whose: Whose, agent_id: Callable[[], str]) -> None:
        self._app, self._whose, self._agent_id = app, whose, agent_id

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        is_asking = scope["type"] == "websocket" or (scope["type"] == "http" and scope["method"] == "POST")
        if not is_asking or scope["path"].removeprefix(scope.get("root_path", "")).startswith(ADMIN):
            return await self._app(scope, receive, send)
        try:
            ask = Ask(self._whose(_headers(scope)))
        except ApiError as refusal:
            return await _refuse(scope, send, refusal)
        token, answer = CURRENT.set(ask), _Answer(ask, send, self._agent_id())
        try:
            await self._app(scope, receive, answer.send)
        finally:
            CURRENT.reset(token)
            answer.close()


class _Answer:
    """Holds the headers back until the hits are known. If the engine refuses, the refusal replaces the answer."""

    def __init__(self, ask: Ask, send: Send, agent_id: str) -> None:
        self._ask, self._send, self._agent_id = ask, send, agent_id
        self._start: Message | None = None
        self._has_begun = False
        self._is_refused = False
        self._lock = asyncio.Lock()
        self._beginning: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            # vLLM may fail before it sends any prompt, and then the engine never reports.
            if self._ask.told.is_set() or not self._ask.prompts or message["status"] >= FIRST_ERROR:
                await self._begin()
            else:
                self._beginning = asyncio.create_task(self._begin_when_told())
        elif message["type"] == "http.response.body" and not self._has_begun:
            if message.get("body", b"").startswith(b":"):
                return  # a comment that keeps a stream alive, which has not begun yet
            await self._begin_when_told()
            await self._pass(message)
        else:
            await self._pass(message)

    def close(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()

    async def _begin_when_told(self) -> None:
        if self._ask.prompts:
            await self._ask.told.wait()
        await self._begin()

    async def _begin(self) -> None:
        async with self._lock:
            if self._has_begun or self._start is None:
                return
            self._has_begun = True
            if self._ask.refusal is not None:
                self._is_refused = True
                await answer(self._send, self._ask.refusal)
                return
            hit_headers = cache_headers(self._ask, self._agent_id)
            headers = [(name.encode(), value.encode("latin-1")) for name, value in hit_headers]
            await self._send({**self._start, "headers": [*self._start.get("headers", []), *headers]})

    async def _pass(self, message: Message) -> None:
        async with self._lock:
            if not self._is_refused:
                await self._send(message)


async def answer(send: Send, refusal: ApiError) -> None:
    body = json.dumps(refusal.body).encode()
    header_values = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    headers = [(name.encode(), value.encode("latin-1")) for name, value in header_values.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(scope: Mapping[str, Any], send: Send, refusal: ApiError) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.message})
    else:
        await answer(send, refusal)


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers. Repeated ones are joined, as HTTP defines, so that they are no valid key or signature."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
