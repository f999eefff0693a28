"""How live sockets are spoken: as uvicorn does it, for pages that only listen."""

import logging
from typing import Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from engine_agent.http.connections import Config

log = logging.getLogger("luminet.live")

MOST_BYTES: Final = 4_096  # of a message from a page, which sends none: it is held in memory until it is whole


class ListeningSocket(WebSocketsSansIOProtocol):
    """Becomes of a connection that is counted already."""

    config: Config

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.config.open_connections.remove(self.client[0] if self.client else None)

    def data_received(self, data: bytes) -> None:
        """Whoever does not keep to the protocol, or does not wait to be let in, is cut off."""
        try:
            super().data_received(data)
        except Exception as problem:  # uvicorn's own, of which it would write a traceback for everybody who tries
            log.info("a socket that is none was cut off", extra={"why": type(problem).__name__})
            self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """Nobody hears what a page says, so it need not even be text."""
        self.frames = []
