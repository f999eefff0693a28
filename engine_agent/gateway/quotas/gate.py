"""Assigns seats at engines: at once or through a fair queue, for a limited time and never behind another model.

An engine's standing says whether it is full. The end of a request wakes the queue; while requests wait, the gate also
polls for other changes: an engine has more room or is back, or a request is no longer allowed to wait.
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
Pick = Callable[[], Engine | None]  # None: all candidates are full. Raises ApiError: none can serve it any more
Check = Callable[[], None]  # raises ApiError if the request may no longer wait
Seat = tuple[Engine, AbstractContextManager[None]]
Waited = Literal["seated", "overloaded", "refused", "left"]


class Serving(Protocol):
    def serving(self, agent: str) -> AbstractContextManager[None]:
        """Count one request at that engine while the context is open."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    pick: Pick
    check: Check
    seat: "asyncio.Future[Seat]"


def _untold(seconds: float, outcome: Waited) -> None:
    """Ignore the wait: the default for `tell`."""


def _unchecked() -> None:
    """Accept any wait: the default for `check`."""


class Gate:
    """Assigns seats. `tell` gets how long each request waited that had to, and how that ended."""

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
        """Yield the picked engine with a seat at it, or raise ApiError. `lane` is equal for requests that may go to
        the same engines; `until` is by the loop's clock.
        """
        engine, serving = self._at_once(pick, lane) or await self._waited(organisation, pick, check, lane, until)
        try:
            yield engine
        finally:
            serving.__exit__(None, None, None)
            self._look()

    def until(self) -> float:
        """Return until when a request that arrives now may wait, over all its attempts, by the loop's clock."""
        return asyncio.get_running_loop().time() + self._queue_seconds

    def close(self) -> None:
        """Refuse all requests that wait, and from now on all that would have to."""
        self._is_closed = True
        for turn in tuple(self._waiting):
            self._line.leave(turn)
            self._refuse(turn, draining())

    # Waiting

    def _at_once(self, pick: Pick, lane: Hashable) -> Seat | None:
        """Return a free seat, unless other requests wait in this lane."""
        return None if self._line.is_waited_for(lane) else self._seat(pick)

    def _seat(self, pick: Pick) -> Seat | None:
        """Take a seat. It counts as taken from now on, whenever the request uses it."""
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
        turn, seat_future = self._join(organisation, lane), loop.create_future()
        self._waiting[turn] = _Waiting(pick, check, seat_future)
        self._look()
        outcome: Waited = "left"
        try:
            await asyncio.wait({seat_future}, timeout=seconds)
            outcome = _ending(seat_future)
        except asyncio.CancelledError:
            if seat_future.done() and seat_future.exception() is None:
                seat_future.result()[1].__exit__(None, None, None)
            raise
        finally:
            self._waiting.pop(turn, None)
            self._line.leave(turn)
            self._tell(loop.time() - began, outcome)
            self._look()
        if not seat_future.done():
            raise in_vain(seconds)
        seat: Seat = seat_future.result()
        return seat

    def _join(self, organisation: str, lane: Hashable) -> Turn:
        try:
            turn, displaced = self._line.join(organisation, lane)
        except LineFull as problem:
            raise (queue_full(self._line.waiting(organisation)) if problem.is_own else no_room()) from None
        if displaced is not None:
            self._refuse(displaced, queue_full(self._line.waiting(displaced.who)))
        return turn

    def _refuse(self, turn: Turn, problem: Exception) -> None:
        """Refuse a request that has left the queue."""
        seat = self._waiting.pop(turn).seat
        if not seat.done():
            seat.set_exception(problem)

    # The queue's order

    def _look(self) -> None:
        """Seat every request that can be seated."""
        for _ in self._line.next(self._is_served):
            pass
        if self._next_look is not None:
            self._next_look.cancel()
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(LOOK_SECONDS, self._look_again) if len(self._line) else None

    def _look_again(self) -> None:
        """Check all waiting requests and engines again, because more may have changed than seats."""
        for turn, waiting in tuple(self._waiting.items()):
            try:
                waiting.check()
            except Exception as problem:
                self._line.leave(turn)
                self._refuse(turn, problem)
        self._look()

    def _is_served(self, turn: Turn) -> bool:
        """Return whether a request is seated or refused. Its errors must not reach the request that made room."""
        waiting = self._waiting[turn]
        try:
            seat = self._seat(waiting.pick)
        except Exception as problem:
            turn.cost = 0.0  # it used no turn, so its organisation's next request does not wait for it
            self._refuse(turn, problem)
            return True
        if seat is not None:
            waiting.seat.set_result(seat)
        return seat is not None


def _ending(seat: "asyncio.Future[Seat]") -> Waited:
    if not seat.done():
        return "overloaded"
    return "seated" if seat.exception() is None else "refused"
