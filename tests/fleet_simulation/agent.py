"""An agent of the simulation: the real sidecar's decisions, with a disk, an engine and a network that are models.

It does what `Sidecar.on` says, in that order, and may die between any two effects. What is on its disk survives that;
everything else begins anew. Its engine dies by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from engine_agent.contracts.protocol import Snapshot
from engine_agent.contracts.wire import Command
from engine_agent.sidecar import effects as asked
from engine_agent.sidecar import events as said
from engine_agent.sidecar.clock import ControlPlaneClock
from engine_agent.sidecar.effects import Effect, Held
from engine_agent.sidecar.effects import Ledger as Kept
from engine_agent.sidecar.events import Event
from engine_agent.sidecar.holder import HolderState
from engine_agent.sidecar.holder import Proof as TakenProof
from engine_agent.sidecar.spool import Spool
from engine_agent.sidecar.state import Sidecar
from tests.fleet_simulation.control_plane import ControlPlane
from tests.fleet_simulation.engine import BLOCK_BYTES, Engine
from tests.fleet_simulation.ledger import BrokenPromise, Ledger
from tests.fleet_simulation.network import Broker, Done, Line
from tests.fleet_simulation.states import snapshot_after, snapshot_in
from tests.fleet_simulation.timeline import BEGINNING, Timeline
from tests.fleet_simulation.weather import Weather

LOOK_SECONDS = 1.0  # between two looks at the engine
WORK_SECONDS = 0.02  # that applying or operating takes
DEAD_SECONDS = 3.0  # until whoever supervises has started it again, on average
SHORTEST_SECONDS = 0.01  # between two looks at the clock
MOST_REPORTS = 5  # in one batch: few, so that batches begin and end everywhere

Made = Callable[[], Event]


@dataclass(slots=True)
class Disk:
    """What survives the process. Every write happens as a whole."""

    stored: tuple[int, Snapshot] | None = None
    ledger: Kept = field(default_factory=Kept)
    spool: "SpoolLines" = field(default_factory=lambda: SpoolLines())


@dataclass(slots=True)
class SpoolLines:
    """The spool's file. What is not durable is gone when the power goes, and what is being written may be torn."""

    content: bytes = b""
    durable: int = 0  # so many bytes of it

    def read(self) -> bytes:
        return self.content

    def append(self, line: bytes, *, is_durable: bool = True) -> None:
        self.content += line
        self.durable = len(self.content) if is_durable else self.durable

    def replace(self, content: bytes) -> None:
        self.content, self.durable = content, len(content)

    def power_cut(self) -> None:
        self.content = self.content[: self.durable]

    def tear(self, share: float) -> None:
        """The last line came onto the disk in part only."""
        line = self.content[self.content.rstrip(b"\n").rfind(b"\n") + 1 :]
        self.replace(self.content[: len(self.content) - int(len(line) * share)])


@dataclass(slots=True)
class World:
    """What all agents share."""

    timeline: Timeline
    weather: Weather
    truth: Ledger
    broker: Broker
    line: Line
    control_plane: ControlPlane
    tell: Callable[[str], None] | None = None  # what happens, for who looks at one run

    def tear(self, lines: SpoolLines) -> None:
        lines.tear(self.weather.random.choice((0.01, 0.3, 0.7, 1.0)))


class Agent:
    def __init__(self, name: str, world: World, *, skew: float, sidecar: type[Sidecar], spool: type[Spool]) -> None:
        self.name, self.disk = name, Disk()
        self._world, self._skew, self._kind, self._spool_kind = world, skew, sidecar, spool
        self._boots = count(1)
        self.engine: Engine | None = None
        self._sidecar: Sidecar | None = None
        self._spool = spool(self.disk.spool)
        self._clock = self._new_clock()
        self._deliveries: dict[int, Done] = {}
        self._numbers = count(1)
        self._seen: set[str] = set()  # of the broker's messages
        self._process = 0
        self._stalled_until = 0.0
        self._tick_at = float("inf")

    # Life and death

    def begin(self) -> None:
        self._engine_start()
        self._start()

    def _start(self) -> None:
        """Another process, with nothing but what is on the disk."""
        self._process += 1
        self._deliveries, self._tick_at, self._stalled_until = {}, float("inf"), 0.0
        stored, disk = self.disk.stored, self.disk
        self._spool = spool = self._spool_kind(disk.spool)
        self._clock = self._new_clock()
        self._sidecar = self._kind(
            self.name,
            boot=f"s{next(self._boots)}",
            held=None if stored is None else Held(stored[0], stored[1].hash),
            ledger=disk.ledger,
            proofs_told=spool.proofs_told,
            spooled=len(spool),
        )
        self._on(said.Started)
        self._on(lambda: said.AboutSeen({"backend": "simulated"}))
        self._look(self._process)

    def _new_clock(self) -> ControlPlaneClock:
        timeline = self._world.timeline
        return ControlPlaneClock(steady=lambda: timeline.now, wall=lambda: timeline.now + self._skew)

    def crash(self) -> None:
        if self._sidecar is None:
            return
        self._sidecar = None
        self._process += 1
        self._world.broker.leave(self.name)
        if self._world.weather.strikes("power_cuts"):
            self.disk.spool.power_cut()
        if self._world.weather.strikes("corruption"):
            self.disk.stored = None  # found broken, and set aside
        self._world.timeline.after(self._pause(), self._start)

    def engine_crash(self) -> None:
        if self.engine is not None:
            self._world.truth.engine_died(self.name, self.engine)
            self.engine = None
            self._world.timeline.after(self._pause(), self._engine_start)

    def stall(self) -> None:
        """It gets no time, as when its machine swaps or sleeps."""
        self._stalled_until = self._world.timeline.now + 2 * self._pause()

    def _engine_start(self) -> None:
        self.engine = Engine(f"e{next(self._boots)}")

    def _pause(self) -> float:
        return self._world.weather.random.expovariate(1 / DEAD_SECONDS)

    # Events in

    def _on(self, make: Made) -> None:
        """Whatever comes in is judged by the clocks at the moment in which there is time for it."""
        wait = self._stalled_until - self._world.timeline.now
        if wait > SHORTEST_SECONDS:
            self._later(wait, partial(self._on, make))
        elif self._sidecar is not None:
            now = self._world.timeline.now
            event = make()
            effects = self._sidecar.on(event, now=now, at=self._clock.now())
            if self._world.tell is not None:
                self._world.tell(f"{now - BEGINNING:8.3f} {self.name} {event}\n    → {effects}")
            if isinstance(event, said.Ticked) and self._sidecar.due_at() <= now:
                raise BrokenPromise(f"{self.name} has seen the time and wants to see it again: it turns in circles")
            self._do(effects)

    def _later(self, seconds: float, deed: Callable[[], None]) -> None:
        """If this process lives until then."""
        process = self._process

        def unless_dead() -> None:
            if process == self._process:
                deed()

        self._world.timeline.after(seconds, unless_dead)

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self._dies():
                return
            self._perform(effect)
            if self._sidecar is None:  # it died of it
                return
        self._tick_plan()

    def _dies(self) -> bool:
        if self._world.weather.strikes("crashes"):
            self.crash()
            return True
        return False

    def _tick_plan(self) -> None:
        assert self._sidecar is not None
        due = max(self._sidecar.due_at(), self._world.timeline.now + SHORTEST_SECONDS)
        if due < self._tick_at:
            self._tick_at = due
            self._later(due - self._world.timeline.now, partial(self._tick, due))

    def _tick(self, due: float) -> None:
        if due == self._tick_at:
            self._tick_at = float("inf")
            self._on(said.Ticked)

    def _look(self, process: int) -> None:
        if process == self._process:
            self._on(lambda: said.HolderSeen(self._state(), "it does not answer"))
            self._later(LOOK_SECONDS, partial(self._look, process))

    def _state(self) -> HolderState | None:
        if self.engine is None:
            return None
        state = "draining" if self.engine.is_draining else "ready"
        return HolderState(self.engine.boot, state, "", None if self.engine.held is None else self.engine.held.hash)

    def _deliver(self, command: Command, done: Done) -> None:
        delivery = next(self._numbers)
        self._deliveries[delivery] = done
        is_again = command.id in self._seen
        self._seen.add(command.id)
        self._on(lambda: said.CommandCame(delivery, command, is_again))

    # Effects out

    def _perform(self, effect: Effect) -> None:
        match effect:
            case asked.Apply():
                self._later(WORK_SECONDS, partial(self._apply, effect))
            case asked.Restore():
                self._later(WORK_SECONDS, partial(self._restore, effect))
            case asked.Pull():
                self._pull(effect)
            case asked.Prove():
                self._later(WORK_SECONDS, partial(self._prove, effect))
            case asked.Operate():
                self._later(WORK_SECONDS, partial(self._operate, effect))
            case asked.Keep():
                self.disk.ledger = effect.ledger
            case asked.Tell():
                self._tell(effect)
            case asked.Settle():
                if done := self._deliveries.pop(effect.delivery, None):
                    done()
            case asked.Send():
                self._send()
            case asked.Log():
                pass
            case _:
                raise AssertionError(f"an effect that nobody performs: {effect!r}")

    def _apply(self, effect: asked.Apply) -> None:
        """The engine obeys, then the disk has it, then the sidecar hears of it. Between these it may die."""
        failed = partial(said.ApplyFailed, generation=effect.generation, hash=effect.target)
        if self.engine is None:
            self._on(lambda: failed(kind="away", why="dead"))
            return
        after = self._content(effect)
        if after is None:
            self._on(lambda: failed(kind="mismatch", why="made for another state"))
            return
        if effect.content is not None:
            self._obey(after)  # the change, or all of it where it has come to hold something else
        if self._dies():
            return
        self.disk.stored = (effect.generation, after)
        boot = self.engine.boot
        if not self._dies():
            self._on(lambda: said.Applied(effect.generation, effect.target, boot, WORK_SECONDS))

    def _content(self, effect: asked.Apply) -> Snapshot | None:
        """The state that it leads to from what is stored; None: it was made for another, or leads elsewhere."""
        stored = None if self.disk.stored is None else self.disk.stored[1]
        if effect.content is None:
            return stored
        if not effect.is_change:
            return snapshot_in(effect.content)
        after = None if stored is None else snapshot_after(stored, effect.content)
        if after is None or after.hash != effect.target or not self._may_hand_over(stored):
            return None
        return after

    def _may_hand_over(self, stored: Snapshot | None) -> bool:
        """To an engine that has come to hold something else, all of it, if what it holds cannot be newer."""
        held = None if self.engine is None else self.engine.held
        assert self._sidecar is not None
        return held is None or held == stored or self._sidecar.has_pulled

    def _obey(self, snapshot: Snapshot) -> None:
        assert self.engine is not None
        before = None if self.engine.held is None else self.engine.held.hash
        self._world.truth.proved[self.name] += self.engine.obey(snapshot)
        self._world.truth.obeyed(self.name, self.engine, before, snapshot.hash)

    def _restore(self, effect: asked.Restore) -> None:
        if self.engine is None:
            self._on(lambda: said.Restored("", "away", "dead"))
            return
        if self.disk.stored is not None:
            self._obey(self.disk.stored[1])
        self.engine.is_draining |= effect.is_draining
        boot = self.engine.boot
        if not self._dies():
            self._on(lambda: said.Restored(boot))

    def _pull(self, effect: asked.Pull) -> None:
        have = effect.have or ""

        def told(answer: tuple[int, str, bytes | None] | None) -> None:
            if answer is None:
                self._on(lambda: said.PullFailed("no answer"))
            else:
                self._on(lambda: said.Pulled(*answer))

        self._asked(lambda: self._world.control_plane.snapshot(self.name, have), told)

    def _prove(self, effect: asked.Prove) -> None:
        if self.engine is None:
            self._on(lambda: said.Proved(None))
            return
        found = self.engine.proofs_after(effect.boot, effect.after)
        proofs = [
            TakenProof(one.boot, one.number, one.namespace, one.epoch, one.blocks, one.blocks * BLOCK_BYTES, 0.0)
            for one in found
        ]
        self._on(lambda: said.Proved(proofs))

    def _operate(self, effect: asked.Operate) -> None:
        if self.engine is None:
            away = {"why": "the engine is away"}
            self._on(lambda: said.Operated(effect.operation, False, away, is_away=True))
            return
        self._world.truth.done(self.name, effect.operation)
        if effect.deed in ("drain", "resume"):
            self.engine.is_draining = effect.deed == "drain"
        result = {"is_draining": self.engine.is_draining}
        if not self._dies():
            self._on(lambda: said.Operated(effect.operation, True, result))

    def _tell(self, effect: asked.Tell) -> None:
        self._spool.tell(effect.reports, effect.proofs_told)
        if self._world.weather.strikes("crashes"):
            self._world.tear(self.disk.spool)
            self.crash()
            return
        for report in effect.reports:
            if report.kind == "applied":
                self._world.truth.acknowledges(self.name, report.told["hash"])
            elif report.kind == "receipt":
                self._world.truth.tells(self.name, report.told["operation"])

    def _send(self) -> None:
        asked_at, spool = self._world.timeline.now, self._spool
        assert self._sidecar is not None
        heartbeat = self._sidecar.heartbeat({})
        batch = spool.batch(sent_at=asked_at + self._skew, heartbeat=heartbeat, most=MOST_REPORTS)

        def heard(answer: dict[str, Any] | None) -> None:
            if answer is None:
                self._on(lambda: said.SendFailed("no answer"))
                return
            spool.acknowledge(answer["acknowledged"])
            self._learn(answer["now"], asked_at)
            desired = answer["desired"] or {"hash": None, "generation": None}
            told = (desired["generation"], desired["hash"], answer["cadence_seconds"], tuple(answer["watch"]))
            self._on(lambda: said.Answered(*told, len(spool), spool.kinds_waiting))

        self._asked(lambda: self._world.control_plane.reports(self.name, batch), heard)

    def _learn(self, now: float, asked_at: float) -> None:
        """It takes commands once it knows the control plane's clock: by its own, good ones may look expired."""
        was_learnt = self._clock.is_learnt
        self._clock.learn(now, asked_at=asked_at, answered_at=self._world.timeline.now)
        if not was_learnt:
            self._world.broker.join(self.name, self._deliver)

    def _asked(self, serve: Callable[[], Any], told: Callable[[Any], None]) -> None:
        process = self._process
        self._world.line.ask(serve, lambda answer: told(answer) if process == self._process else None)
