"""A pool of idle connections for the next request to the same engine. It grows to the number of concurrent requests."""

import asyncio
from collections import defaultdict

from engine_agent.gateway.calling.connection import Connection
from engine_agent.gateway.calling.dialling import Address, Dialling

KEEP_ALIVE_SECONDS = 30.0  # shorter than the engine's timeout, so that the engine does not close first
SWEEP_SECONDS = 10.0  # between two removals of connections that were idle too long


class Pool:
    def __init__(self) -> None:
        self._dialling = Dialling()
        self._idle: defaultdict[Address, list[Connection]] = defaultdict(list)  # the most recently used is last
        self._open: set[Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    async def take(self, address: Address) -> Connection:
        """Raise OSError if no connection can be opened."""
        if (idle_connection := self._kept(address)) is not None:
            return idle_connection
        connection = await self._dialling.dial(address, self._open.discard)
        if connection.is_fresh:  # otherwise it has already ended
            self._open.add(connection)
        return connection

    def give_back(self, address: Address, connection: Connection) -> None:
        if not connection.is_fresh:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle[address].append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._open):
            connection.close()

    def _kept(self, address: Address) -> Connection | None:
        """Return the connection used last: the engine may just have closed those that were idle longer."""
        idle, latest = self._idle.get(address), asyncio.get_running_loop().time() - KEEP_ALIVE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.is_fresh and connection.idle_since > latest:
                return connection
            connection.close()
        return None

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() - KEEP_ALIVE_SECONDS
        for address, idle in list(self._idle.items()):
            fresh = [connection for connection in idle if connection.is_fresh and connection.idle_since > latest]
            for connection in set(idle) - set(fresh):
                connection.close()
            if fresh:
                self._idle[address] = fresh
            else:
                del self._idle[address]
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep) if self._idle else None
