"""A client's end of one request, spoken to an ASGI application as uvicorn would. It may leave, or read slowly."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_agent.http.client import Asgi

SECONDS = 5


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.document["error"]

    @property
    def events(self) -> list[Any]:
        """Of a stream; the last may be the text [DONE]."""
        data = [line.removeprefix("data: ") for line in self.body.decode().split("\n\n") if line]
        return [one if one == "[DONE]" else json.loads(one) for one in data]


@dataclass
class Call:
    """`reads`: how many messages it takes before it stops reading. `stalls_after`: how many chunks before it stops."""

    app: Asgi
    method: str
    path: str
    headers: dict[str, str]
    chunks: Sequence[bytes]
    reads: int | None = None
    stalls_after: int | None = None
    pauses: float = 0.0  # seconds before each chunk
    host: str = "127.0.0.1"
    left: asyncio.Event = field(default_factory=asyncio.Event)
    sent: "asyncio.Queue[Any]" = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self._chunks = list(self.chunks)
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        path, _, query = self.path.partition("?")
        scope = {
            "type": "http",
            "method": self.method,
            "path": path,
            "headers": headers,
            "query_string": query.encode(),
            "client": (self.host, 1),
        }
        self.task = asyncio.ensure_future(self.app(scope, self._receive, self._send))

    async def start(self) -> tuple[int, dict[str, str]]:
        message = await self.next()
        return message["status"], {name.decode(): value.decode() for name, value in message["headers"]}

    async def part(self) -> bytes:
        return bytes((await self.next())["body"])

    async def next(self) -> Any:
        async with asyncio.timeout(SECONDS):
            return await self.sent.get()

    async def end(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self.task

    async def answered(self) -> Answered:
        await self.end()
        status, headers = await self.start()
        body = b""
        while not self.sent.empty():
            body += await self.part()
        return Answered(status, headers, body)

    async def _receive(self) -> dict[str, Any]:
        if self._chunks and self.stalls_after != len(self.chunks) - len(self._chunks):
            await asyncio.sleep(self.pauses)
            chunk = self._chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self.reads is not None and self.sent.qsize() >= self.reads:
            await self.left.wait()
            return
        self.sent.put_nowait(message)


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends requests to one application, with the headers that let it in."""

    app: Asgi
    headers: dict[str, str]

    def call(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        chunks: Sequence[bytes] = (),
        stalls_after: int | None = None,
        reads: int | None = None,
        pauses: float = 0.0,
        host: str = "127.0.0.1",
    ) -> Call:
        """`body`: a document, or bytes as they are. An empty header takes away one of the usual ones."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {name: value for name, value in {**self.headers, **(headers or {})}.items() if value}
        return Call(self.app, method, path, named, chunks or [data], reads, stalls_after, pauses, host)

    async def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answered:
        return await self.call(path, body, headers=headers).answered()

    async def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answered:
        return await self.call(path, method=method, headers=headers).answered()

    async def chat(self, **fields: Any) -> Answered:
        return await self.post("/v1/chat/completions", chat_body(**fields))

    async def complete(self, **fields: Any) -> Answered:
        return await self.post("/v1/completions", {"model": "tiny", "prompt": "Once upon", **fields})


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], **fields}
