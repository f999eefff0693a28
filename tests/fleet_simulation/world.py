"""One run: a world made from a seed, a while of weather, calm, and the judgement."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random

from engine_agent.sidecar.spool import Spool
from engine_agent.sidecar.state import Sidecar
from tests.fleet_simulation.agent import Agent, World
from tests.fleet_simulation.control_plane import ControlPlane, StepRow
from tests.fleet_simulation.ledger import BrokenPromise, Ledger
from tests.fleet_simulation.network import Broker, Line
from tests.fleet_simulation.states import NAMESPACES
from tests.fleet_simulation.timeline import BEGINNING, Timeline
from tests.fleet_simulation.weather import Kind, Weather, weather_of

STORMY_SECONDS = 25.0
CALM_SECONDS = 400.0  # by the end of which everything has healed; most runs need a few
DEEDS = 8  # of people, while it storms
ENGINE_DEEDS = ("drain", "resume", "integrity")
REQUEST_SECONDS = 2.0  # between two requests at one agent, on average
AFTERWARDS_SECONDS = 10.0  # in which what is late may still come


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: how long it took to heal, and what happened on the way."""

    seed: int
    healed_seconds: float
    faults: int
    generations: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What is under test. Broken ones must be caught."""

    sidecar: type[Sidecar] = Sidecar
    control_plane: type[ControlPlane] = ControlPlane
    spool: type[Spool] = Spool
    agent: type[Agent] = Agent


class Run:
    def __init__(self, seed: int, parts: Parts, *, tell: Callable[[str], None] | None = None) -> None:
        self.seed, self.random = seed, Random(seed)
        self.timeline, self.truth = Timeline(), Ledger()
        self.weather: Weather = weather_of(self.random)
        self.broker = Broker(self.timeline, self.weather)
        self.control_plane = parts.control_plane(
            self.timeline, self.weather, self.broker.send, self.truth.state_wanted, self._ended
        )
        line = Line(self.timeline, self.weather)
        world = World(self.timeline, self.weather, self.truth, self.broker, line, self.control_plane, tell)
        names = [f"agent-{number}" for number in range(1, 1 + self.random.choice((1, 2, 2, 3)))]
        self.agents = {
            name: parts.agent(name, world, skew=self._skew(), sidecar=parts.sidecar, spool=parts.spool)
            for name in names
        }
        if tell is not None:
            tell(str(self.weather))

    def _skew(self) -> float:
        return self.random.uniform(-1, 1) * self.weather.skew_seconds

    def _ended(self, step: StepRow) -> None:
        self.truth.ended(step, self.agents[step.agent].engine, self.timeline.now)

    def run(self) -> Outcome:
        self.control_plane.begin(self.agents)
        for agent in self.agents.values():
            self.timeline.after(self.random.uniform(0, 2), agent.begin)
            self._requests(agent)
        for _ in range(DEEDS):
            self.timeline.after(self.random.uniform(1, STORMY_SECONDS), self._deed)
        self._strike()
        self.timeline.run_until(BEGINNING + STORMY_SECONDS)
        self.weather.clear()
        healed = self._heal()
        self.timeline.run_until(self.timeline.now + AFTERWARDS_SECONDS)
        self._judge()
        generations = sum(row.desired_generation for row in self.control_plane.agents.values())
        return Outcome(self.seed, healed, self.weather.struck.total(), generations)

    def _deed(self) -> None:
        """What somebody does: mostly publish, sometimes purge, sometimes ask an engine for something."""
        place = self.random.randrange(len(NAMESPACES))
        match self.random.choices(("publish", "purge", "ask"), (5, 3, 2))[0]:
            case "publish":
                self.control_plane.publish(place)
            case "purge":
                self.control_plane.purge(place)
            case "ask":
                self.control_plane.ask(self.random.choice(list(self.agents)), self.random.choice(ENGINE_DEEDS))

    def _requests(self, agent: Agent) -> None:
        """Customers, who fill caches and find what is in them."""
        if not self.weather.is_over:
            if agent.engine is not None:
                agent.engine.serve(self.random.choice(NAMESPACES), self.random.randint(1, 5))
                self.truth.served(agent.name, agent.engine)
            self.timeline.after(self.random.expovariate(1 / REQUEST_SECONDS), partial(self._requests, agent))

    def _strike(self) -> None:
        """Once a second, whatever the weather has."""
        weather = self.weather
        if weather.is_over:
            return
        self.timeline.after(1.0, self._strike)
        if weather.strikes("wiped_broker"):
            self.broker.wipe()
        for agent in self.agents.values():
            faults: tuple[tuple[Kind, Callable[[], None]], ...] = (
                ("crashes", agent.crash),
                ("engine_crashes", agent.engine_crash),
                ("stalls", agent.stall),
            )
            for kind, fault in faults:
                if weather.strikes(kind):
                    fault()

    def _heal(self) -> float:
        """Seconds until the promises of the end held."""
        began = self.timeline.now
        while self.timeline.now < began + CALM_SECONDS:
            self.timeline.run_until(self.timeline.now + 1.0)
            with suppress(BrokenPromise):
                self._judge()
                break
        return self.timeline.now - began

    def _judge(self) -> None:
        self.truth.judge(self.control_plane, {name: agent.engine for name, agent in self.agents.items()})
