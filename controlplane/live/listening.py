"""The connection on which a process receives PostgreSQL's notifications of new usage."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection

log = logging.getLogger("luminet.live")

CHANNEL = "luminet_usage"
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 4.0
PROOF_SECONDS = 15.0  # after this much silence the connection is tested
# Notice a server that has vanished, although this connection only waits for it.
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


class Listening:
    """Listens for notifications and reconnects after failures.

    It calls `on_notification` for all organisations after a reconnect, because notifications may have been missed, and
    at every attempt while disconnected, so that pages are still refreshed, only more slowly.
    """

    def __init__(self, on_notification: Callable[[str], None]) -> None:
        self._told = on_notification
        self.is_connected = False

    async def run(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                await self._hear()
            except Exception as error:  # retry after any error
                # Log once: later attempts fail for the same reason.
                if self.is_connected or wait == FIRST_WAIT_SECONDS:
                    log.warning("not listening to the database; asking it instead", extra={"why": str(error)})
                wait = FIRST_WAIT_SECONDS if self.is_connected else min(2 * wait, LONGEST_WAIT_SECONDS)
            finally:
                self.is_connected = False
            self._told(EVERYBODY)
            await asyncio.sleep(wait)

    async def _hear(self) -> None:
        async with await psycopg.AsyncConnection.connect(autocommit=True, **_parameters()) as listening:
            await listening.execute(f"LISTEN {CHANNEL}")
            self.is_connected = True
            self._told(EVERYBODY)
            while True:
                async for notify in listening.notifies(timeout=PROOF_SECONDS):
                    self._told(notify.payload)
                await listening.execute("SELECT 1")


EVERYBODY = "*"


def organisations_told(payload: str) -> frozenset[int] | None:
    """Return the organisations with new usage; None means that it may be any."""
    parts = payload.split(",")
    return frozenset(map(int, parts)) if all(part.isascii() and part.isdecimal() for part in parts) else None


def _parameters() -> dict[str, Any]:
    """Return the parameters of Django's connections, without those that only Django needs."""
    parameters = connection.get_connection_params()
    django_only = ("cursor_factory", "context", "prepare_threshold")
    return {name: value for name, value in parameters.items() if name not in django_only} | KEEPALIVES
