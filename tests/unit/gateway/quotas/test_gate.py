"""Seats at engines: who gets one, who waits for how long, and that nothing is left of who does not wait any more."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from engine_agent.gateway.quotas.gate import Gate
from engine_agent.gateway.quotas.line import Line
from engine_agent.gateway.tables import Engine
from engine_agent.http.errors import ApiError


class Seats:
    """Engines with so many seats each."""

    def __init__(self, **seats: int) -> None:
        self.seats, self.taken = seats, Counter[str]()

    @contextmanager
    def serving(self, agent: str) -> Iterator[None]:
        self.taken[agent] += 1
        assert self.taken[agent] <= self.seats[agent]
        try:
            yield
        finally:
            self.taken[agent] -= 1

    def pick(self, *agents: str) -> Engine | None:
        free = [agent for agent in agents if self.taken[agent] < self.seats[agent]]
        return Engine(free[0], "", True, {}, b"") if free else None


class Room:
    """A gate in front of them, and what became of everybody."""

    def __init__(self, seats: Seats, *, line: Line | None = None, queue_seconds: float = 30.0) -> None:
        self.seats, self.gate = seats, Gate(seats, queue_seconds=queue_seconds, line=line)
        self.seated: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[str]] = {}

    async def come(self, name: str, *agents: str) -> "asyncio.Task[str]":
        """A name begins with its organisation's letter."""
        self._leave[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._sit(name, agents))
        await asyncio.sleep(0)
        return self.tasks[name]

    async def go(self, name: str) -> str:
        self._leave[name].set()
        return await self.tasks[name]

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
            with suppress(asyncio.CancelledError, ApiError):
                await task
        assert not self.seats.taken.total()
        assert self.gate.waiting == 0

    async def _sit(self, name: str, agents: tuple[str, ...]) -> str:
        async with self.gate.seat(name[0], lambda: self.seats.pick(*agents), lane=agents) as engine:
            self.seated.append(name)
            await self._leave[name].wait()
            return engine.agent


def refusal(task: "asyncio.Task[str]") -> tuple[int, str | None]:
    problem = task.exception()
    assert isinstance(problem, ApiError)
    assert "retry-after" in problem.headers
    return problem.status, problem.code


def test_who_comes_to_a_full_engine_waits_until_one_has_gone() -> None:
    async def run() -> None:
        room = Room(Seats(x=1))
        await room.come("a1", "x")
        await room.come("b1", "x")
        assert (room.seated, room.gate.waiting) == (["a1"], 1)
        assert await room.go("a1") == "x"
        assert await room.go("b1") == "x"
        await room.end()

    asyncio.run(run())


def test_organisations_get_seats_in_turn_whoever_floods() -> None:
    async def run() -> None:
        room = Room(Seats(x=1))
        for name in ("a0", "a1", "a2", "a3", "b1", "b2"):
            await room.come(name, "x")
        for _ in range(5):
            await room.go(room.seated[-1])
            await asyncio.sleep(0)
        assert set(room.seated[1:5]) == {"a1", "a2", "b1", "b2"}
        await room.end()

    asyncio.run(run())


def test_a_full_model_does_not_hold_up_another() -> None:
    async def run() -> None:
        room = Room(Seats(x=1, y=1))
        for name in ("a1", "a2"):
            await room.come(name, "x")
        await room.come("a3", "y")
        assert room.seated == ["a1", "a3"]
        await room.end()

    asyncio.run(run())


def test_room_that_an_engine_tells_of_is_seen() -> None:
    async def run() -> None:
        room = Room(Seats(x=0))
        await room.come("a1", "x")
        room.seats.seats["x"] = 1
        assert await room.go("a1") == "x"
        await room.end()

    asyncio.run(run())


def test_who_waits_in_vain_is_told_so() -> None:
    async def run() -> None:
        room = Room(Seats(x=0), queue_seconds=0.01)
        task = await room.come("a1", "x")
        await asyncio.wait({task})
        assert refusal(task) == (503, "overloaded")
        await room.end()

    asyncio.run(run())


def test_an_organisation_whose_own_line_is_full_is_refused_and_others_are_not() -> None:
    async def run() -> None:
        room = Room(Seats(x=0), line=Line(most=3, most_each=2))
        for name in ("a1", "a2"):
            await room.come(name, "x")
        task = await room.come("a3", "x")
        await asyncio.wait({task})
        assert refusal(task) == (429, "queue_full")
        await room.come("b1", "x")
        assert room.gate.waiting == 3
        await room.end()

    asyncio.run(run())


def test_who_is_pushed_out_by_another_organisation_is_told_that_its_own_line_is_full() -> None:
    async def run() -> None:
        room = Room(Seats(x=0), line=Line(most=3))
        for name in ("a1", "a2", "a3"):
            await room.come(name, "x")
        await room.come("b1", "x")
        await asyncio.wait({room.tasks["a3"]})
        assert refusal(room.tasks["a3"]) == (429, "queue_full")
        assert room.gate.waiting == 3
        await room.end()

    asyncio.run(run())


@pytest.mark.parametrize("is_seated", [True, False], ids=["in the moment it is seated", "while it waits"])
def test_who_leaves_takes_nobodys_seat(is_seated: bool) -> None:
    async def run() -> None:
        room = Room(Seats(x=1))
        for name in ("a1", "b1", "c1"):
            await room.come(name, "x")
        if is_seated:
            room._leave["a1"].set()
            while room.gate.waiting == 2:  # noqa: ASYNC110 (until the seat is b1's, which has not been told yet)
                await asyncio.sleep(0)
        room.tasks["b1"].cancel()
        await asyncio.wait({room.tasks["b1"]})
        room._leave["a1"].set()
        assert await room.go("c1") == "x"
        await room.end()

    asyncio.run(run())
