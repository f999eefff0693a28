"""Allow live sockets for our own pages only.

A browser sends the session's cookie with any site's socket, so the page's `Origin` decides: scheme, host and port must
all match.
"""

from collections.abc import Collection
from typing import Any

from channels.security.websocket import WebsocketDenier


class OriginCheck:
    """Refuse a handshake with 403 unless it has exactly one `Origin`, and that is one of ours.

    Browsers always send it, and always spell it the same. A program without a browser has no session to use here.
    """

    def __init__(self, inner: Any, origins: Collection[str]) -> None:
        self._inner = inner
        self._origins = frozenset(origins)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sent = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
        is_ours = len(sent) == 1 and sent[0] in self._origins
        await (self._inner if is_ours else WebsocketDenier())(scope, receive, send)
