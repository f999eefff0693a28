"""Live sockets open for our own pages alone. A browser sends a session's cookie with any site's socket, so the page's
`Origin` decides: scheme, host and port, compared as one word."""

from collections.abc import Collection
from typing import Any

from channels.security.websocket import WebsocketDenier


class OriginCheck:
    """Refuse a handshake with 403 unless it has one `Origin`, and that is one of ours.

    Browsers always send it, in its one spelling. A program without a browser has no session that it could use here.
    """

    def __init__(self, inner: Any, origins: Collection[str]) -> None:
        self._inner = inner
        self._origins = frozenset(origins)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sent = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
        is_ours = len(sent) == 1 and sent[0] in self._origins
        await (self._inner if is_ours else WebsocketDenier())(scope, receive, send)
