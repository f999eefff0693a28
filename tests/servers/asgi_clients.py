"""A client's end of HTTP and of live sockets, spoken straight to the ASGI application as uvicorn would."""

import json
from collections.abc import Sequence
from typing import Any, cast

from asgiref.testing import ApplicationCommunicator

from controlplane.asgi import application

# asgiref leaves its communicator untyped; here is what it takes and gives.
_Communicator = cast(Any, ApplicationCommunicator)
SECONDS = 5


async def ask(
    path: str,
    *,
    method: str = "GET",
    query: bytes = b"",
    client: str = "127.0.0.1",
    headers: dict[str, str] | None = None,
    chunks: Sequence[bytes] = (b"",),
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request, whose own body arrives in these chunks."""
    given = {"host": "testserver", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": (client, 1),
    }
    communicator = _Communicator(application, scope)
    for number, chunk in enumerate(chunks, start=1):
        message = {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        await communicator.send_input(message)
    start = await communicator.receive_output(SECONDS)
    body, more = b"", True
    while more:
        part = await communicator.receive_output(SECONDS)
        body, more = body + part.get("body", b""), part.get("more_body", False)
    await communicator.wait()
    return start["status"], {name.decode().lower(): value.decode() for name, value in start["headers"]}, body


class Socket:
    """Channels has one of these too, but importing it asks for a second web server."""

    def __init__(
        self, path: str, *, query: str = "", headers: list[tuple[bytes, bytes]], served_by: Any = application
    ) -> None:
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
            "client": ("127.0.0.1", 1),
        }
        self._communicator = _Communicator(served_by, scope)

    async def connect(self) -> bool:
        """Whether the handshake was accepted."""
        await self._communicator.send_input({"type": "websocket.connect"})
        return bool((await self.receive())["type"] == "websocket.accept")

    async def send_text(self, text: str) -> None:
        await self._communicator.send_input({"type": "websocket.receive", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        await self._communicator.send_input({"type": "websocket.receive", "bytes": data})

    async def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._communicator.receive_output(SECONDS)
        return message

    async def receive_json(self) -> Any:
        return json.loads((await self.receive())["text"])

    async def disconnect(self) -> None:
        await self._communicator.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._communicator.wait()
