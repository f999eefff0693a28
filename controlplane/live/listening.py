"""The one connection on which a process hears from PostgreSQL that something was counted."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection

log = logging.getLogger("luminet.live")

CHANNEL = "luminet_usage"
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 4.0
PROOF_SECONDS = 15.0  # after this long a silence the connection has to show that it is one
# A server that has vanished without a word is noticed, though we only ever wait for it.
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


class Listening:
    """Connects, hears, and connects again. Whoever asks it to `told` everything once it is back, for what was missed
    meanwhile; and, while it is away, with every attempt: so pages go on, only more slowly."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self.is_connected = False

    async def run(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                await self._hear()
            except Exception as error:  # whatever it is, it is tried again
                # Told once: later attempts fail for the same reason.
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
    """Whose numbers have moved; None: perhaps everybody's."""
    parts = payload.split(",")
    return frozenset(map(int, parts)) if all(part.isascii() and part.isdecimal() for part in parts) else None


def _parameters() -> dict[str, Any]:
    """Where Django's own connections go, without what only those need."""
    given = connection.get_connection_params()
    own = ("cursor_factory", "context", "prepare_threshold")
    return {name: value for name, value in given.items() if name not in own} | KEEPALIVES
