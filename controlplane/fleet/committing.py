"""Many agents' batches in one commit: what comes while one is being written is written together after it.

Nobody is answered before its batch is committed. Where one batch cannot be written, it must not hold up the others:
then each is written by itself, and only who is to blame is told.
"""

import asyncio
from collections.abc import Awaitable, Callable

from django.db import InterfaceError, OperationalError

from controlplane.fleet.recording import Batches, Stored
from engine_agent.wire import Batch

MOST_AT_ONCE = 200
Store = Callable[[Batches], Awaitable[dict[str, Stored]]]
Outcome = Stored | None | BaseException


class GroupCommit:
    """For one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[str, Batch, asyncio.Future[Stored | None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def stored(self, agent: str, batch: Batch) -> Stored | None:
        """What came of it, once it is committed; None: there is no such agent any more. Raises what went wrong."""
        future: asyncio.Future[Stored | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((agent, batch, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        while self._waiting:
            group = self._next()
            outcomes = await self._outcomes({agent: batch for agent, (batch, _) in group.items()})
            for agent, (_, future) in group.items():
                _settle(future, outcomes[agent])

    def _next(self) -> "dict[str, tuple[Batch, asyncio.Future[Stored | None]]]":
        """The first in line, of each agent one batch: a second has to know what came of the first."""
        group: dict[str, tuple[Batch, asyncio.Future[Stored | None]]] = {}
        left = []
        for agent, batch, future in self._waiting:
            if agent in group or len(group) == MOST_AT_ONCE:
                left.append((agent, batch, future))
            else:
                group[agent] = (batch, future)
        self._waiting = left
        return group

    async def _outcomes(self, batches: Batches) -> dict[str, Outcome]:
        try:
            stored = await self._store(batches)
        except (OperationalError, InterfaceError) as error:  # the database is away or busy: that is nobody's fault
            return dict.fromkeys(batches, error)
        except Exception as error:
            if len(batches) == 1:
                return dict.fromkeys(batches, error)
            return {agent: (await self._outcomes({agent: one}))[agent] for agent, one in batches.items()}
        return {agent: stored.get(agent) for agent in batches}


def _settle(future: "asyncio.Future[Stored | None]", outcome: Outcome) -> None:
    if future.done():  # whoever asked has left
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
