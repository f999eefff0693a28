"""An engine that has its answer ready, for what is in front of it to be measured. It tells a gateway all that a gateway
asks engines for: prompts are read, hashed and looked for in its cache as in any other's.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httptools

from engine_agent.contracts.block_events import Load, Page, events_encode
from engine_agent.process.commands import loop_factory
from engine_agent.prompts.bundle import Bundle, bundle_encode, bundle_name
from tests.engines.processes import DEMO
from tests.gateway.snapshots import MODEL

BOOT = "boot-1"
LOAD = Load(running=0, waiting=0, seats=1_000, free_blocks=1_000_000, pool_blocks=1_000_000, seconds_behind=0.0)
ANSWER: Mapping[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": MODEL,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Calm."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14},
}
COUNTED = {
    "x-luminet-cache-hit": "miss",
    "x-luminet-cached-tokens": "0",
    "x-luminet-prompt-tokens": "12",
    "x-luminet-kv-dtype": "bf16",
    "x-luminet-namespace": "default",
    "x-luminet-policy-revision": "7",
    "x-luminet-agent": "agent-1",
}


class Told:
    """What it answers, in bytes that are made once."""

    def __init__(self) -> None:
        bundle = bundle_encode(Bundle.from_folder(DEMO))
        name = bundle_name(bundle)
        about = {
            "agent": "agent-1",
            "boot": BOOT,
            "model": MODEL,
            "revision": "r1",
            "block_tokens": 16,
            "kv_dtypes": ["bf16"],
            "scale_sets": {"bf16": ""},
            "bundle": name,
            "seats": LOAD.seats,
        }
        self.generated = framed(json.dumps(ANSWER).encode(), COUNTED)
        self._plain = {
            "/health": framed(b'{"status": "ok"}'),
            "/v1/models": framed(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()),
            "/gateway/about": framed(json.dumps(about).encode()),
            f"/gateway/bundles/{name}": framed(bundle),
            "/gateway/events": framed(
                events_encode(Page(BOOT, 1, is_snapshot=True, is_whole=True, load=LOAD, changes=()))
            ),
        }

    def at(self, path: str) -> bytes:
        return self._plain.get(path) or framed(b"{}", status=b"404 Not Found")


def framed(body: bytes, headers: Mapping[str, str] | None = None, *, status: bytes = b"200 OK") -> bytes:
    told = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return b"HTTP/1.1 %b\r\n%b\r\n%b" % (status, head.encode(), body)


class Connection(asyncio.Protocol):
    def __init__(self, told: Told) -> None:
        self._told, self._url = told, b""
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_message_complete(self) -> None:
        url, self._url = urlsplit(self._url.decode()), b""
        if self._parser.get_method() == b"POST":
            self._transport.write(self._told.generated)
            return
        wait = float(parse_qs(url.query).get("wait", ["0"])[0])
        asyncio.get_running_loop().call_later(wait, self._write, self._told.at(url.path))  # nothing new will come

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


async def serve(on_ready: Callable[[int], None]) -> None:
    told = Told()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(told), "127.0.0.1", 0)
    on_ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(lambda port: print(port, flush=True)))
    sys.exit(0)
