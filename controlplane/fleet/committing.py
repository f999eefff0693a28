"""Commit the batches of many agents together: batches that arrive during a write form the next group.

A batch is answered only after its commit. If one batch cannot be written, it must not hold up the others: each batch of
the group is then written separately, only the agent with the faulty batch gets an error, and its batches are written
separately for a while. The queue is bounded, in total and for each agent. When it is full, an agent is asked to come
again; it loses nothing, because its reports stay in its spool.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from controlplane.fleet.errors import TooMuchWaits
from controlplane.fleet.recording import Batches, Stored
from engine_agent.contracts.wire import MOST_BATCH_BYTES, Batch

MOST_AT_ONCE = 200
# Sizes are of JSON, which takes eight times as much memory decoded: batches written and waiting take up to 100 MB.
MOST_BYTES_AT_ONCE = 4 * 2**20  # so that a group is written well within the statement timeout
MOST_WAITING = 2_000
MOST_WAITING_BYTES = 8 * 2**20
MOST_BYTES_OF_ONE = 2 * MOST_BATCH_BYTES  # an agent that gets no answer sends the same batch again
APART_SECONDS = 60.0
Store = Callable[[Batches], Awaitable[dict[str, Stored]]]
Outcome = Stored | None | BaseException


@dataclass(frozen=True, slots=True)
class _Waiting:
    agent: str
    batch: Batch
    size: int
    future: "asyncio.Future[Stored | None]"


class GroupCommit:
    """Writes waiting batches in groups. One instance for each event loop."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._apart: dict[str, float] = {}  # agent: until when its batches are written separately

    async def stored(self, agent: str, batch: Batch, *, size: int = 0) -> Stored | None:
        """Return the result once it is committed, or None if the agent no longer exists.

        Raise TooMuchWaits, or the error of the write. `size` is the batch's size in bytes.
        """
        self._check_room(agent, size)
        future: asyncio.Future[Stored | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(agent, batch, size, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await future

    def _check_room(self, agent: str, size: int) -> None:
        waiting_bytes, own_entries = (
            sum(entry.size for entry in self._waiting),
            [entry for entry in self._waiting if entry.agent == agent],
        )
        is_full = len(self._waiting) >= MOST_WAITING or (self._waiting and waiting_bytes + size > MOST_WAITING_BYTES)
        if is_full or (own_entries and sum(entry.size for entry in own_entries) + size > MOST_BYTES_OF_ONE):
            raise TooMuchWaits(len(self._waiting), waiting_bytes)

    async def _write(self) -> None:
        while self._waiting:
            group = self._next()
            outcomes = await self._outcomes({agent: entry.batch for agent, entry in group.items()})
            for agent, entry in group.items():
                _settle(entry.future, outcomes[agent])

    def _next(self) -> dict[str, _Waiting]:
        """Take the next group from the queue: one batch of each agent, because a second depends on the first."""
        group: dict[str, _Waiting] = {}
        remaining, passed_over, room = list[_Waiting](), set[str](), MOST_BYTES_AT_ONCE
        for entry in self._waiting:
            is_full = len(group) == MOST_AT_ONCE or (
                group and (entry.size > room or self._is_apart(entry.agent, *group))
            )
            if is_full or entry.agent in passed_over:
                remaining.append(entry)
            else:
                group[entry.agent] = entry
                room -= entry.size
            passed_over.add(entry.agent)  # its later batches wait until the earlier ones are written
        self._waiting = remaining
        return group

    def _is_apart(self, *agents: str) -> bool:
        """Return whether one of these agents' batches must be written separately."""
        if not self._apart:
            return False
        self._apart = {agent: until for agent, until in self._apart.items() if until > self._clock()}
        return not self._apart.keys().isdisjoint(agents)

    async def _outcomes(self, batches: Batches) -> dict[str, Outcome]:
        try:
            stored = await self._store(batches)
        except (OperationalError, InterfaceError) as error:  # the database is away or busy: no batch is at fault
            return dict.fromkeys(batches, error)
        except Exception as error:
            if len(batches) == 1:
                self._apart |= dict.fromkeys(batches, self._clock() + APART_SECONDS)
                return dict.fromkeys(batches, error)
            return {agent: (await self._outcomes({agent: batch}))[agent] for agent, batch in batches.items()}
        return {agent: stored.get(agent) for agent in batches}


def _settle(future: "asyncio.Future[Stored | None]", outcome: Outcome) -> None:
    if future.done():  # the request was cancelled
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
