"""A small OpenAI server for the load generator to ask: it streams as many words as it is asked for, and can misbehave.

It keeps whole prompts, so that a second time all but the last token comes from its cache.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

MODEL = "scripted"


@dataclass
class Scripted:
    takes_ids: bool = True
    knows_ignore_eos: bool = True
    tokens_per_word: int = 1
    key: str | None = None
    misbehave: Callable[[web.StreamResponse], Any] | None = None  # awaited after the first word
    headers: dict[str, str] = field(default_factory=dict)
    hold: "asyncio.Event | None" = None  # nothing is answered before it is set
    release_at: int = 0  # how many must wait until it is
    bodies: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    seen: set[str] = field(default_factory=set)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._answer)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if refusal := self._refusal(request, body):
            return refusal
        self.bodies.append(body)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.hold is not None:
                if self.running >= self.release_at:
                    self.hold.set()
                await self.hold.wait()
            return await self._stream(request, body)
        finally:
            self.running -= 1

    def _refusal(self, request: web.Request, body: dict[str, Any]) -> web.Response | None:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return _error(401, "invalid_api_key", "Incorrect API key")
        if not self.takes_ids and not isinstance(body.get("prompt", ""), str):
            return _error(400, "invalid_type", "prompt: text, please")
        if not self.knows_ignore_eos and "ignore_eos" in body:
            return _error(400, "unknown_parameter", "ignore_eos: what is that?")
        return None

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        cached = self._cached(body)
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **self.headers})
        await response.prepare(request)
        if "messages" in body:
            await _send(response, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for number in range(body["max_tokens"]):
            piece = {"delta": {"content": "word "}} if "messages" in body else {"text": "word "}
            await _send(response, {"choices": [{"index": 0, **piece, "finish_reason": None}]})
            if number == 0 and self.misbehave is not None:
                await self.misbehave(response)
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        usage = {"prompt_tokens": self._tokens(body), "completion_tokens": body["max_tokens"], **details}
        await _send(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    def _cached(self, body: dict[str, Any]) -> int:
        prompt = json.dumps(body.get("prompt", body.get("messages")))
        is_known = prompt in self.seen
        self.seen.add(prompt)
        return self._tokens(body) - 1 if is_known else 0

    def _tokens(self, body: dict[str, Any]) -> int:
        prompt = body.get("prompt", body.get("messages", [{}])[0].get("content"))
        return len(prompt) if isinstance(prompt, list) else len(prompt.split()) * self.tokens_per_word


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status)


async def _send(response: web.StreamResponse, what: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(what).encode() + b"\n\n")


@asynccontextmanager
async def serving(scripted: Scripted) -> AsyncIterator[str]:
    """Its address, up to and including /v1."""
    runner = web.AppRunner(scripted.app(), shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
