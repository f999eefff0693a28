"""Seats at engines: at once where there is one, else in a fair line, for so long, and never behind another model's.

An engine is full as its standing says it. Who waits is woken when a request ends; that an engine tells of more room, or
is there again, and that somebody may not wait any more, is looked at now and then while somebody waits.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from engine_agent.gateway.quotas.line import Line, LineFull, Turn
from engine_agent.gateway.refusals import draining, in_vain, no_room, queue_full
from engine_agent.gateway.tables import Engine

QUEUE_SECONDS = 30.0
LOOK_SECONDS = 0.05
Pick = Callable[[], Engine | None]  # None: all that could serve are full now. Raises ApiError: none will any more
Check = Callable[[], None]  # raises ApiError when there is nothing to wait for any more
Seat = tuple[Engine, AbstractContextManager[None]]
Waited = Literal["seated", "overloaded", "refused", "left"]


class Serving(Protocol):
    def serving(self, agent: str) -> AbstractContextManager[None]:
        """One request at that engine, as long as it lasts."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    pick: Pick
    check: Check
    seat: "asyncio.Future[Seat]"


def _untold(seconds: float, outcome: Waited) -> None:
    """Nobody counts it."""


def _unchecked() -> None:
    """Whoever waits may go on waiting."""


class Gate:
    """`tell`: how long each request waited that had to, and how that ended."""

    def __init__(
        self,
        engines: Serving,
        *,
        queue_seconds: float = QUEUE_SECONDS,
        line: Line | None = None,
        tell: Callable[[float, Waited], None] = _untold,
    ) -> None:
        self._engines, self._queue_seconds, self._tell = engines, queue_seconds, tell
        self._line = Line() if line is None else line
        self._waiting: dict[Turn, _Waiting] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return len(self._line)

    @asynccontextmanager
    async def seat(
        self,
        organisation: str,
        pick: Pick,
        *,
        lane: Hashable,
        until: float | None = None,
        check: Check = _unchecked,
    ) -> AsyncIterator[Engine]:
        """A seat at the engine that was picked. `lane`: what of two requests is the same where they may go to the same
        engines; `until`: by the loop's clock. Raises ApiError.
        """
        engine, serving = self._at_once(pick, lane) or await self._waited(organisation, pick, check, lane, until)
        try:
            yield engine
        finally:
            serving.__exit__(None, None, None)
            self._look()

    def until(self) -> float:
        """By the loop's clock, how long one that comes now may wait, all its attempts together."""
        return asyncio.get_running_loop().time() + self._queue_seconds

    def close(self) -> None:
        """Nobody waits any more: not those who do, and not who would have to."""
        self._is_closed = True
        for turn in tuple(self._waiting):
            self._line.leave(turn)
            self._refuse(turn, draining())

    # Who waits

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

    async def _waited(self, organisation: str, pick: Pick, check: Check, lane: Hashable, until: float | None) -> Seat:
        if self._is_closed:
            raise draining()
        loop = asyncio.get_running_loop()
        began = loop.time()
        seconds = self._queue_seconds if until is None else max(0.0, until - began)
        turn, seat = self._join(organisation, lane), loop.create_future()
        self._waiting[turn] = _Waiting(pick, check, seat)
        self._look()
        outcome: Waited = "left"
        try:
            await asyncio.wait({seat}, timeout=seconds)
            outcome = _ending(seat)
        except asyncio.CancelledError:
            if seat.done() and seat.exception() is None:
                seat.result()[1].__exit__(None, None, None)
            raise
        finally:
            self._waiting.pop(turn, None)
            self._line.leave(turn)
            self._tell(loop.time() - began, outcome)
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

    def _refuse(self, turn: Turn, problem: Exception) -> None:
        """Whoever is out of the line."""
        seat = self._waiting.pop(turn).seat
        if not seat.done():
            seat.set_exception(problem)

    # Whose turn it is

    def _look(self) -> None:
        """Whoever can be seated is."""
        for _ in self._line.next(self._is_served):
            pass
        if self._next_look is not None:
            self._next_look.cancel()
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(LOOK_SECONDS, self._look_again) if len(self._line) else None

    def _look_again(self) -> None:
        """After a while in which more may have changed than seats."""
        for turn, waiting in tuple(self._waiting.items()):
            try:
                waiting.check()
            except Exception as problem:
                self._line.leave(turn)
                self._refuse(turn, problem)
        self._look()

    def _is_served(self, turn: Turn) -> bool:
        """Whatever goes wrong with it is its own affair, not that of whoever made room."""
        waiting = self._waiting[turn]
        try:
            seat = self._seat(waiting.pick)
        except Exception as problem:
            turn.cost = 0.0  # it had no turn: its organisation's next one does not wait for it
            self._refuse(turn, problem)
            return True
        if seat is not None:
            waiting.seat.set_result(seat)
        return seat is not None


def _ending(seat: "asyncio.Future[Seat]") -> Waited:
    if not seat.done():
        return "overloaded"
    return "seated" if seat.exception() is None else "refused"
