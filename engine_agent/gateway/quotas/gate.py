"""Seats at engines: at once where there is one, else in a fair line, for so long, and never behind another model's.

An engine is full as its standing says it. Who waits is woken when a request ends; that an engine tells of more room, or
is there again, is looked at now and then while somebody waits.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Protocol

from engine_agent.gateway.quotas.line import Line, LineFull, Turn
from engine_agent.gateway.refusals import in_vain, no_room, queue_full
from engine_agent.gateway.tables import Engine
from engine_agent.http.errors import ApiError

QUEUE_SECONDS = 30.0
LOOK_SECONDS = 0.05
Pick = Callable[[], Engine | None]  # None: all that could serve are full now
Seat = tuple[Engine, AbstractContextManager[None]]


class Serving(Protocol):
    def serving(self, agent: str) -> AbstractContextManager[None]:
        """One request at that engine, as long as it lasts."""


class _Waiting:
    def __init__(self, pick: Pick, seat: "asyncio.Future[Seat]") -> None:
        self.pick, self.seat = pick, seat


class Gate:
    def __init__(self, engines: Serving, *, queue_seconds: float = QUEUE_SECONDS, line: Line | None = None) -> None:
        self._engines, self._queue_seconds = engines, queue_seconds
        self._line = Line() if line is None else line
        self._waiting: dict[Turn, _Waiting] = {}
        self._next_look: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._line)

    @asynccontextmanager
    async def seat(
        self, organisation: str, pick: Pick, *, lane: Hashable, until: float | None = None
    ) -> AsyncIterator[Engine]:
        """A seat at the engine that was picked. `lane`: what of two requests is the same where they may go to the same
        engines; `until`: by the loop's clock. Raises ApiError.
        """
        engine, serving = self._at_once(pick, lane) or await self._waited(organisation, pick, lane, until)
        try:
            yield engine
        finally:
            serving.__exit__(None, None, None)
            self._look()

    def until(self) -> float:
        """By the loop's clock, how long one that comes now may wait, all its attempts together."""
        return asyncio.get_running_loop().time() + self._queue_seconds

    def _at_once(self, pick: Pick, lane: Hashable) -> Seat | None:
        """Not before those who wait for the same."""
        return None if self._line.is_waited_for(lane) else self._seat(pick)

    def _seat(self, pick: Pick) -> Seat | None:
        """Taken from this moment on, whenever it is sat on."""
        engine = pick()
        if engine is None:
            return None
        serving = self._engines.serving(engine.agent)
        serving.__enter__()
        return engine, serving

    async def _waited(self, organisation: str, pick: Pick, lane: Hashable, until: float | None) -> Seat:
        loop = asyncio.get_running_loop()
        seconds = self._queue_seconds if until is None else max(0.0, until - loop.time())
        turn, seat = self._join(organisation, lane), loop.create_future()
        self._waiting[turn] = _Waiting(pick, seat)
        self._look()
        try:
            await asyncio.wait({seat}, timeout=seconds)
        except asyncio.CancelledError:
            if seat.done() and seat.exception() is None:
                seat.result()[1].__exit__(None, None, None)
            raise
        finally:
            self._waiting.pop(turn, None)
            self._line.leave(turn)
            self._look()
        if not seat.done():
            raise in_vain(seconds)
        found: Seat = seat.result()
        return found

    def _join(self, organisation: str, lane: Hashable) -> Turn:
        try:
            turn, out = self._line.join(organisation, lane)
        except LineFull as problem:
            raise (queue_full(self._line.waiting(organisation)) if problem.is_own else no_room()) from None
        if out is not None:
            self._refuse(out, queue_full(self._line.waiting(out.who)))
        return turn

    def _refuse(self, turn: Turn, error: ApiError) -> None:
        seat = self._waiting.pop(turn).seat
        if not seat.done():
            seat.set_exception(error)

    def _look(self) -> None:
        """Whoever can be seated is."""
        for _ in self._line.next(self._is_seated):
            pass
        if self._next_look is not None:
            self._next_look.cancel()
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(LOOK_SECONDS, self._look) if len(self._line) else None

    def _is_seated(self, turn: Turn) -> bool:
        waiting = self._waiting[turn]
        seat = self._seat(waiting.pick)
        if seat is not None:
            waiting.seat.set_result(seat)
        return seat is not None
