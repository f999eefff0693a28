"""This gateway's view of its engines: how many of its requests each runs, and whether each answers.

Every second the gateway checks every engine's health; a request that cannot connect reports that at once. An engine
that is silent for too long (`silence.py`) is given up: its requests end, and it gets no more until it answers. The
outcomes of requests count as well (`health.py`).
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from engine_agent.contracts.block_events import Load
from engine_agent.gateway.health import Health
from engine_agent.gateway.silence import Silence
from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Engine

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # time between two health checks of an engine
MOST_LOOK_SECONDS = 5.0
TICK_SECONDS = 0.25  # time between two checks for silent engines
MOST_HEALTH_BYTES = 65_536
NEWEST = 0.5  # the weight of the newest health check
HANGS_SECONDS = 3.0  # a health check without an answer for so long ejects the engine until it answers
NO_LOAD = Load(0, 0, 0, 0, 0, 0.0)


@dataclass(slots=True)
class _Seen:
    in_flight: int = 0
    is_reachable: bool = True  # assumed until the first health check
    look_seconds: float = 0.0
    silence: Silence = field(default_factory=Silence)
    looking_since: float | None = None
    waiting: set[asyncio.Timeout] = field(default_factory=set)
    health: Health = field(default_factory=Health)

    def standing(self, load: Load, now: float) -> Standing:
        looking = 0.0 if self.looking_since is None else now - self.looking_since
        return Standing(
            is_reachable=self.is_reachable,
            in_flight=self.in_flight,
            look_seconds=max(self.look_seconds, looking),
            is_silent=self.silence.is_over,
            is_ejected=looking >= HANGS_SECONDS or self.health.is_ejected(now),
            share=self.health.share(now),
            running=load.running,
            waiting=load.waiting,
            seats=load.seats,
            free_blocks=load.free_blocks,
            pool_blocks=load.pool_blocks,
        )


_UNSEEN = _Seen()


class Waiting:
    """A wait for an engine. It ends with TimeoutError if the engine is given up as silent."""

    __slots__ = ("_all", "_limit")

    def __init__(self, all_waiting: set[asyncio.Timeout]) -> None:
        self._all, self._limit = all_waiting, asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._all.add(self._limit)

    async def __aexit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: Any) -> None:
        self._all.discard(self._limit)
        await self._limit.__aexit__(kind, problem, trace)


class Engines:
    """The state of all engines. `load_of` returns the load an engine reports, or None if it reports none."""

    def __init__(
        self, load_of: Callable[[str], Load | None] = lambda agent: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load_of, self._clock = load_of, clock
        self._seen: dict[str, _Seen] = {}

    def standing(self, agent: str) -> Standing:
        return self._seen.get(agent, _UNSEEN).standing(self._load_of(agent) or NO_LOAD, self._clock())

    @property
    def in_flight(self) -> int:
        return sum(engine_state.in_flight for engine_state in self._seen.values())

    @contextlib.contextmanager
    def serving(self, agent: str) -> Iterator[None]:
        """Count one request at the engine while the context is open."""
        engine_state = self._of(agent)
        engine_state.in_flight += 1
        try:
            yield
        finally:
            engine_state.in_flight -= 1

    def waiting(self, agent: str) -> "Waiting":
        """Return a context for a wait of any length, which raises TimeoutError if the engine falls silent meanwhile."""
        return Waiting(self._of(agent).waiting)

    def unreachable(self, agent: str, why: str) -> None:
        """Mark the engine as unreachable. Health checks continue, and mark it as reachable once it answers."""
        engine_state = self._of(agent)
        if engine_state.is_reachable:
            log.warning("engine %s cannot be reached: %s", agent, why)
        engine_state.is_reachable = False
        engine_state.health.gone(self._clock())

    def succeeded(self, agent: str) -> None:
        """Record that the engine answered a request completely."""
        self._of(agent).health.succeeded()

    def failed(self, agent: str) -> None:
        """Record that the engine did not answer a request, broke off its answer, or reported a failure."""
        if self._of(agent).health.failed(self._clock()):
            log.warning("engine %s fails: others are asked first", agent)

    def passed(self, seconds: float) -> None:
        """Advance the clock by `seconds`, and end waits for engines that have been silent for too long."""
        for agent, engine_state in self._seen.items():
            if engine_state.silence.passed(seconds):
                log.warning("engine %s is silent: %d requests wait for it no longer", agent, len(engine_state.waiting))
            if engine_state.silence.is_over:
                for timeout in engine_state.waiting:
                    timeout.reschedule(asyncio.get_running_loop().time())
                engine_state.waiting.clear()

    def spoke(self, agent: str) -> None:
        self._of(agent).silence.spoke()

    def answered(self, agent: str, seconds: float) -> None:
        engine_state = self._of(agent)
        if not engine_state.is_reachable:
            log.info("engine %s can be reached", agent)
        engine_state.is_reachable = True
        engine_state.health.back(self._clock())
        engine_state.look_seconds += NEWEST * (seconds - engine_state.look_seconds)

    @contextlib.contextmanager
    def looking(self, agent: str) -> Iterator[None]:
        engine_state = self._of(agent)
        engine_state.looking_since = self._clock()
        engine_state.silence.look_begins()
        try:
            yield
        finally:
            engine_state.looking_since = None
            engine_state.silence.look_ends()

    def keep(self, agents: Mapping[str, Engine]) -> None:
        """Forget engines that have left the fleet, once their last request has ended."""
        self._seen = {
            agent: engine_state
            for agent, engine_state in self._seen.items()
            if agent in agents or engine_state.in_flight
        }

    def _of(self, agent: str) -> _Seen:
        return self._seen.setdefault(agent, _Seen())


class Lookout:
    """Checks each engine's health in a separate task, so that an engine that hangs does not delay the others."""

    def __init__(
        self, engines: Engines, known: Callable[[], Mapping[str, Engine]], session: aiohttp.ClientSession
    ) -> None:
        self._engines, self._known, self._session = engines, known, session
        self._watched: dict[str, Engine] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        judging = asyncio.create_task(self._judge())
        try:
            while not judging.done():
                self._look_at_all()
                await asyncio.sleep(LOOK_SECONDS)
            judging.result()  # without this task no silent engine would be given up, so its error must surface
        finally:
            for task in (judging, *self._looking.values()):
                task.cancel()

    async def _judge(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            await asyncio.sleep(TICK_SECONDS)
            self._engines.passed(clock() - began)

    def _look_at_all(self) -> None:
        engines = self._known()
        self._engines.keep(engines)
        # Keep checking engines that left the fleet with running requests: otherwise those could wait for ever.
        still_serving = {
            agent: engine for agent, engine in self._watched.items() if self._engines.standing(agent).in_flight
        }
        self._watched = engines = {**still_serving, **engines}
        self._looking = {agent: task for agent, task in self._looking.items() if not task.done()}
        for agent in engines.keys() - self._looking.keys():
            self._looking[agent] = asyncio.create_task(self._look(engines[agent]))

    async def _look(self, engine: Engine) -> None:
        began = time.monotonic()
        try:
            with self._engines.looking(engine.agent):
                status = await self._status(engine)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            self._engines.unreachable(engine.agent, str(problem) or type(problem).__name__)
        else:
            self._engines.spoke(engine.agent)
            if status == 200:
                self._engines.answered(engine.agent, time.monotonic() - began)
            else:
                self._engines.unreachable(engine.agent, f"it answered with {status}")

    async def _status(self, engine: Engine) -> int:
        async with (
            asyncio.timeout(MOST_LOOK_SECONDS),
            self._session.get(f"{engine.address}/health", allow_redirects=False) as answer,
        ):
            await answer.content.read(MOST_HEALTH_BYTES)  # with more than that, the connection is not reused
            return answer.status
