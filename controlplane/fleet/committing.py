"""Many agents' batches in one commit: what comes while one is being written is written together after it.

Nobody is answered before its batch is committed. Where one batch cannot be written, it must not hold up the others:
then each is written by itself, only who is to blame is told, and for a while what it sends is written apart. What waits
is bounded, of one agent as well: whoever comes when that much waits already is asked to come again, and nothing of it
is lost, for it stays in the agent's spool.
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
# Of JSON, which takes eight times as much room once it is decoded: what is written and what waits come to 100 MB.
MOST_BYTES_AT_ONCE = 4 * 2**20  # so that it is written well within the time that a statement has
MOST_WAITING = 2_000
MOST_WAITING_BYTES = 8 * 2**20
MOST_BYTES_OF_ONE = 2 * MOST_BATCH_BYTES  # an agent that is not answered sends the same again
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
    """For one event loop."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._apart: dict[str, float] = {}  # until when

    async def stored(self, agent: str, batch: Batch, *, size: int = 0) -> Stored | None:
        """What came of it, once it is committed; None: there is no such agent any more. Raises what went wrong, and
        TooMuchWaits. `size`: of the batch, in bytes."""
        self._check_room(agent, size)
        future: asyncio.Future[Stored | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(agent, batch, size, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await future

    def _check_room(self, agent: str, size: int) -> None:
        waiting, own = sum(one.size for one in self._waiting), [one for one in self._waiting if one.agent == agent]
        is_full = len(self._waiting) >= MOST_WAITING or (self._waiting and waiting + size > MOST_WAITING_BYTES)
        if is_full or (own and sum(one.size for one in own) + size > MOST_BYTES_OF_ONE):
            raise TooMuchWaits(len(self._waiting), waiting)

    async def _write(self) -> None:
        while self._waiting:
            group = self._next()
            outcomes = await self._outcomes({agent: one.batch for agent, one in group.items()})
            for agent, one in group.items():
                _settle(one.future, outcomes[agent])

    def _next(self) -> dict[str, _Waiting]:
        """The first in line, of each agent one batch: a second has to know what came of the first."""
        group: dict[str, _Waiting] = {}
        left, passed_over, room = list[_Waiting](), set[str](), MOST_BYTES_AT_ONCE
        for one in self._waiting:
            is_full = len(group) == MOST_AT_ONCE or (group and (one.size > room or self._is_apart(one.agent, *group)))
            if is_full or one.agent in passed_over:
                left.append(one)
            else:
                group[one.agent] = one
                room -= one.size
            passed_over.add(one.agent)  # what it sent later waits until what it sent before is written
        self._waiting = left
        return group

    def _is_apart(self, *agents: str) -> bool:
        """Whether one of them is not to be written with others."""
        if not self._apart:
            return False
        self._apart = {agent: until for agent, until in self._apart.items() if until > self._clock()}
        return not self._apart.keys().isdisjoint(agents)

    async def _outcomes(self, batches: Batches) -> dict[str, Outcome]:
        try:
            stored = await self._store(batches)
        except (OperationalError, InterfaceError) as error:  # the database is away or busy: that is nobody's fault
            return dict.fromkeys(batches, error)
        except Exception as error:
            if len(batches) == 1:
                self._apart |= dict.fromkeys(batches, self._clock() + APART_SECONDS)
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
