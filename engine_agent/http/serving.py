"""Serves an application by uvicorn, for engine and gateway. The process handles signals and the event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from engine_agent.http.connection_limits import ConnectionLimits
from engine_agent.http.connections import Config, Connection, Deadlines

KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 3  # time for running answers when a server stops


class Server(uvicorn.Server):
    """A server that leaves signals to its process, which may have several servers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    def listen_no_more(self) -> None:
        """Free the port at once, and close each connection when its answer has ended."""
        for listener in self.servers:
            listener.close()
        for connection in tuple(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.retire()

    @property
    def unfinished(self) -> int:
        """Return how many clients wait for an answer, or for the rest of one."""
        connections = self.server_state.connections
        return sum(isinstance(connection, Connection) and connection.is_unfinished for connection in connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_of(
    app: Any,
    *,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 (frozen)
    deadlines: Deadlines = Deadlines(),  # noqa: B008 (frozen)
) -> Server:
    config = Config(
        app,
        limits=limits,
        deadlines=deadlines,
        loop="none",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config)
