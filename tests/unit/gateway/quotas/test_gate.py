"""Seats at engines: who gets one, who waits for how long, and that nothing is left of who does not wait any more."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from engine_agent.gateway.quotas.gate import Gate, Pick
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
        self.told: list[str] = []  # of whoever waited, how it ended
        self.seats, self.gate = seats, Gate(seats, queue_seconds=queue_seconds, line=line, tell=self._tell)
        self.seated: list[str] = []
        self.gone: dict[str, Exception] = {}  # organisations that may not wait any more, and what they are told
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

    def _tell(self, seconds: float, outcome: str) -> None:
        self.told.append(outcome)

    def _check(self, organisation: str) -> None:
        if organisation in self.gone:
            raise self.gone[organisation]

    def _picking(self, organisation: str, agents: tuple[str, ...]) -> Pick:
        def pick() -> Engine | None:
            self._check(organisation)
            return self.seats.pick(*agents)

        return pick

    async def _sit(self, name: str, agents: tuple[str, ...]) -> str:
        who = name[0]
        check, pick = partial(self._check, who), self._picking(who, agents)
        async with self.gate.seat(who, pick, lane=agents, check=check) as engine:
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


# Who may not wait any more


def suspended() -> ApiError:
    return ApiError(403, "suspended", code="suspended")


def test_who_may_not_wait_any_more_is_told_so_while_nobody_makes_room() -> None:
    async def run() -> None:
        room = Room(Seats(x=1))
        for name in ("a1", "b1", "b2", "c1"):
            await room.come(name, "x")
        room.gone["b"] = suspended()
        for name in ("b1", "b2"):
            await asyncio.wait({room.tasks[name]})
            assert room.tasks[name].exception() is room.gone["b"]
        assert (room.seated, room.gate.waiting) == (["a1"], 1)
        room._leave["a1"].set()
        assert await room.go("c1") == "x"
        assert room.told == ["refused", "refused", "seated"]
        await room.end()

    asyncio.run(run())


def test_who_may_not_is_found_out_in_the_moment_of_its_turn_and_costs_nobody_that_turn() -> None:
    async def run() -> None:
        room = Room(Seats(x=1))
        for name in ("a1", "b1", "c1"):
            await room.come(name, "x")
        room.gone["b"] = suspended()
        room._leave["a1"].set()
        await room.tasks["a1"]
        await asyncio.sleep(0)  # no look at those who wait has come between
        assert room.seated == ["a1", "c1"]
        await asyncio.wait({room.tasks["b1"]})
        assert room.tasks["b1"].exception() is room.gone["b"]
        await room.end()

    asyncio.run(run())


def test_an_organisation_whose_request_was_refused_has_had_no_turn() -> None:
    async def run() -> None:
        room = Room(Seats(x=1, y=0))
        for name in ("o1", "a1", "b1"):
            await room.come(name, "x")
        await room.come("c1", "y")  # somebody waits all the time, so that turns are remembered
        room.gone["a"] = suspended()
        room._leave["o1"].set()
        await asyncio.wait({room.tasks["a1"]})  # refused when its turn came; then it was b1's
        del room.gone["a"]
        for name in ("b2", "a2"):
            await room.come(name, "x")
        await room.go("b1")
        await asyncio.sleep(0)
        assert room.seated == ["o1", "b1", "a2"]
        await room.end()

    asyncio.run(run())


def test_what_goes_wrong_with_one_is_nobody_elses_affair() -> None:
    async def run() -> None:
        room = Room(Seats(x=1))
        for name in ("a1", "b1", "c1"):
            await room.come(name, "x")
        room.gone["b"] = ZeroDivisionError()
        assert await room.go("a1") == "x"
        assert await room.go("c1") == "x"
        assert room.tasks.pop("b1").exception() is room.gone["b"]
        assert room.told == ["refused", "seated"]
        await room.end()

    asyncio.run(run())


def test_at_a_gate_that_closes_nobody_waits_any_more_and_who_is_seated_stays() -> None:
    async def run() -> None:
        room = Room(Seats(x=1))
        for name in ("a1", "b1"):
            await room.come(name, "x")
        room.gate.close()
        assert room.gate.waiting == 0
        await asyncio.wait({room.tasks["b1"]})
        assert refusal(room.tasks["b1"]) == (503, "draining")
        late = await room.come("c1", "x")
        await asyncio.wait({late})
        assert refusal(late) == (503, "draining")
        assert await room.go("a1") == "x"
        await room.come("d1", "x")  # there is room: it need not wait
        assert await room.go("d1") == "x"
        await room.end()

    asyncio.run(run())


def test_how_waiting_ended_is_told_and_nothing_of_those_who_did_not_wait() -> None:
    async def run() -> None:
        room = Room(Seats(x=1), queue_seconds=0.01)
        for name in ("a1", "b1"):
            await room.come(name, "x")
        await asyncio.wait({room.tasks["b1"]})
        assert room.told == ["overloaded"]
        left = await room.come("c1", "x")
        left.cancel()
        await asyncio.wait({left})
        assert room.told == ["overloaded", "left"]
        await room.end()

    asyncio.run(run())
