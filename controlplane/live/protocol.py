"""The protocol of live sockets: uvicorn's, adapted to pages that only listen."""

import logging
from typing import Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from engine_agent.http.connections import Config

log = logging.getLogger("luminet.live")

MOST_BYTES: Final = 4_096  # of a client's message: pages send none, and a partial one is held in memory


class ListeningSocket(WebSocketsSansIOProtocol):
    """Takes over a connection that is already counted as open."""

    config: Config

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.config.open_connections.remove(self.client[0] if self.client else None)

    def data_received(self, data: bytes) -> None:
        """Disconnect a client that violates the protocol or sends data before it is accepted."""
        try:
            super().data_received(data)
        except Exception as problem:  # uvicorn would log a traceback for each attempt
            log.info("a socket that is none was cut off", extra={"why": type(problem).__name__})
            self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """Discard a client's message: it is never read, so it need not even be text."""
        self.frames = []
