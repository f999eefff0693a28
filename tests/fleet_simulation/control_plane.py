"""The control plane of the simulation: its tables, and around them the real decisions.

Who is pushed to and which operations are asked of whom is `rollouts.plan`'s; what a batch of reports comes to is
`fleet.intake`'s. Here are the tables, which survive every crash, and transactions, which happen as a whole or not at
all. Between two of them, and between a transaction and the message after it, a process may die.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from controlplane.fleet.arrivals import Received
from controlplane.fleet.intake import Ended, Facts, Known, Proof, WaitingStep, intake_plan, steps_proved
from controlplane.rollouts.assigning import (
    Assignment,
    Held,
    PlannedStep,
    assignments_plan,
    steps_plan,
)
from controlplane.rollouts.assigning import WaitingStep as UnplannedStep
from controlplane.rollouts.desired import Holder
from controlplane.rollouts.plan import AgentView, Order, Push, StepView, plan_operations, plan_pushes
from engine_agent.contracts.wire import COMMAND_SECONDS, Batch, Command
from tests.fleet_simulation.states import NAMESPACES, ORGANISATION, Wanted, body_of, change_text, snapshot_of
from tests.fleet_simulation.timeline import Timeline
from tests.fleet_simulation.weather import Weather

SWEEP_SECONDS = 2.0
CADENCE_SECONDS = 2.5
ANSWERS_SECONDS = 1.0  # how old what an answer says of the desired state may be
OPERATION_SECONDS = 300.0
PUSHES_AT_ONCE = 100
STATE = "state"
ENGINE_DEEDS = ("drain", "resume", "integrity")
OWNERS = {int(name): int(ORGANISATION) for name in NAMESPACES}

Send = Callable[[str, Command], None]


@dataclass(slots=True)
class AgentRow:
    id: str
    desired_hash: str = ""
    desired_generation: int = 0
    desired_at: datetime | None = None
    generations: dict[int, str] = field(default_factory=dict)
    applied_hash: str = ""
    applied_generation: int = 0
    rejected_hash: str = ""
    received: Received = field(default_factory=Received)
    proofs: tuple[Proof, ...] = ()
    push_generation: int = 0
    push_hash: str = ""
    push_attempts: int = 0
    push_retry_at: datetime | None = None

    def held(self) -> Held:
        return Held(Holder(self.id, "engine", 1), self.desired_hash, self.desired_generation, self.applied_generation)

    def view(self) -> AgentView:
        return AgentView(
            self.id,
            self.desired_generation,
            self.desired_hash,
            self.desired_at,
            self.applied_generation,
            self.applied_hash,
            self.push_generation,
            self.push_hash,
            self.push_attempts,
            self.push_retry_at,
        )


@dataclass(slots=True)
class StepRow:
    id: int
    operation: str
    agent: str
    deed: str
    namespace: int | None = None
    epoch: int = 0  # that a purge has made the namespace's
    generation: int | None = None
    attempts: int = 0
    retry_at: datetime | None = None
    deadline: datetime | None = None
    ended: Ended | None = None

    def view(self, generation: int) -> StepView:
        own = (self.id, self.operation, self.agent, self.deed, generation)
        return StepView(*own, self.attempts, self.retry_at, self.deadline)

    def waiting(self) -> WaitingStep:
        return WaitingStep(self.id, self.operation, self.deed, self.generation, self.namespace)


@dataclass(slots=True)
class ControlPlane:
    timeline: Timeline
    weather: Weather
    send: Send
    on_wanted: Callable[[str], None]  # told of every state that is wanted from now on, by hash
    on_ended: Callable[[StepRow], None]
    agents: dict[str, AgentRow] = field(default_factory=dict)
    steps: list[StepRow] = field(default_factory=list)
    wanted: Wanted = field(default_factory=Wanted)
    states: dict[str, Wanted] = field(default_factory=dict)  # whatever was ever to be held, by hash
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the door says is desired
    recorded: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)  # purges told, by agent
    overlaps: int = 0
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    # What people do

    def publish(self, place: int) -> None:
        self.wanted = self.wanted.published(place)
        self._committed()

    def purge(self, place: int) -> None:
        self.wanted = self.wanted.purged(place)
        operation, namespace = f"op-{next(self._ids)}", int(NAMESPACES[place])
        for agent in self.agents:
            step = StepRow(next(self._ids), operation, agent, STATE, namespace, self.wanted.epochs[place])
            self.steps.append(step)
        self._committed()

    def ask(self, agent: str, deed: str) -> None:
        deadline = instant(self.timeline.now + OPERATION_SECONDS)
        self.steps.append(StepRow(next(self._ids), f"op-{next(self._ids)}", agent, deed, deadline=deadline))
        self._committed()

    def begin(self, names: Iterable[str]) -> None:
        self.on_wanted(snapshot_of(self.wanted).hash)
        self.agents = {name: AgentRow(name) for name in names}
        self.sweep()
        self.answers_refresh()

    def _committed(self) -> None:
        """The task by which a commit is told of may be lost; the sweep is not."""
        self.on_wanted(snapshot_of(self.wanted).hash)
        if not self.weather.strikes("loss"):
            self.timeline.after(self.weather.delay_seconds() / 10, self.plan)

    def told_of(self, agent: str) -> list[Mapping[str, Any]]:
        """The purges that this agent has told of, each time that it was taken down."""
        return [told for who, told in self.recorded if who == agent]

    # What workers do, several at once

    def sweep(self) -> None:
        self.timeline.after(SWEEP_SECONDS, self.sweep)
        if not self.weather.strikes("stalls"):
            self.plan()

    def plan(self) -> None:
        """Read in one moment, write in another, send in a third: meanwhile others do the same, and each may die."""
        if self._dies():
            return
        waiting = [
            UnplannedStep(one.id, one.agent, one.operation)
            for one in self.steps
            if one.ended is None and one.deed == STATE and one.generation is None
        ]
        held = [row.held() for row in self.agents.values()]
        wanted = self.wanted
        self.timeline.after(self.weather.overlap_seconds(), lambda: self._write(waiting, held, wanted))

    def _write(self, waiting: list[UnplannedStep], held: list[Held], wanted: Wanted) -> None:
        if self._dies():
            return
        hash_ = self._remembered(wanted)
        assignments = assignments_plan(held, dict.fromkeys(self.agents, hash_))
        for one in assignments:
            self._assign(one)
        generations = {one.holder.agent_id: one.generation for one in held}
        generations |= {one.agent_id: one.generation for one in assignments}
        for step in steps_plan(waiting, held, (), generations):
            self._await(step, hash_)
        self._settle()
        if not self._dies():
            self._push()

    def _remembered(self, wanted: Wanted) -> str:
        hash_ = snapshot_of(wanted).hash
        self.states[hash_] = wanted
        return hash_

    def _assign(self, one: Assignment) -> None:
        row = self.agents[one.agent_id]
        if row.desired_generation != one.seen:
            self.overlaps += 1  # somebody else has assigned since
        else:
            row.desired_generation, row.desired_hash = one.generation, one.hash
            row.desired_at = instant(self.timeline.now)
            row.generations[one.generation] = one.hash

    def _await(self, one: PlannedStep, hash_: str) -> None:
        step, row = self._step(one.step_id), self.agents[one.agent_id]
        if step.generation is None and (row.desired_generation, row.desired_hash) == (one.generation, hash_):
            step.generation = one.generation

    def _settle(self) -> None:
        """Steps whose generation has been acknowledged already: nothing more comes that could end them."""
        for row in self.agents.values():
            if row.generations.get(row.applied_generation) != row.applied_hash:
                continue
            owed = [one.waiting() for one in self.steps if one.agent == row.id and one.ended is None]
            ended, left = steps_proved(owed, row.proofs, generation=row.applied_generation)
            if ended:
                row.proofs = tuple(left)
                for one in ended:
                    self._end(one)

    def _push(self) -> None:
        now = instant(self.timeline.now)
        pushes = plan_pushes([row.view() for row in self.agents.values()], now=now, limit=PUSHES_AT_ONCE)
        orders = plan_operations([self._step_view(one) for one in self.steps if one.ended is None], now=now)
        for push in pushes:
            self._record_push(push)
        for order in orders:
            self._record_order(order)
        self.timeline.after(self.weather.overlap_seconds(), lambda: self._send_all(pushes, orders))

    def _send_all(self, pushes: list[Push], orders: list[Order]) -> None:
        for push in pushes:
            if self._dies():
                return
            self.send(push.agent_id, self._push_command(push))
        for order in orders:
            if self._dies():
                return
            self.send(order.agent_id, self._order_command(order))

    def _record_push(self, push: Push) -> None:
        row = self.agents[push.agent_id]
        row.push_generation, row.push_hash, row.push_attempts = push.generation, push.target, push.attempts
        row.push_retry_at = push.retry_at

    def _record_order(self, order: Order) -> None:
        step = self._step(order.step_id)
        step.attempts, step.retry_at = order.attempts, order.retry_at

    def _step(self, number: int) -> StepRow:
        return next(one for one in self.steps if one.id == number)

    def _step_view(self, step: StepRow) -> StepView:
        return step.view(self.agents[step.agent].desired_generation)

    def _push_command(self, push: Push) -> Command:
        base, target = self.states.get(push.base), self.states[push.target]
        change = None if base is None else change_text(base, target)
        body = {"base": push.base or None, "target": push.target, "change": change}
        return self._command(push.agent_id, "apply", push.generation, body)

    def _order_command(self, order: Order) -> Command:
        deadline = order.deadline.timestamp() if order.deadline else self.timeline.now + OPERATION_SECONDS
        body = {"operation": order.operation_id, "deed": order.deed, "arguments": {}, "deadline": deadline}
        return self._command(order.agent_id, "operation", order.generation, body)

    def _command(self, agent: str, deed: Any, generation: int, body: dict[str, Any]) -> Command:
        now = self.timeline.now
        return Command(agent, f"c-{next(self._ids)}", deed, generation, now, now + COMMAND_SECONDS, body)

    def _dies(self) -> bool:
        return self.weather.strikes("crashes")

    # What agents ask

    def answers_refresh(self) -> None:
        """Once a second, as the heartbeats' one write does it."""
        self.timeline.after(ANSWERS_SECONDS, self.answers_refresh)
        for row in self.agents.values():
            self.answers[row.id] = {"hash": row.desired_hash, "generation": row.desired_generation}

    def reports(self, agent: str, batch: Batch) -> dict[str, Any] | None:
        """One transaction; None: it died before the commit."""
        if self._dies():
            return None
        row = self.agents[agent]
        intake = intake_plan(row.received, self._known(row), batch)
        row.received = intake.arrival.received
        self._store(row, intake.facts)
        self.recorded += [(agent, one.told) for one in intake.arrival.fresh if one.kind == "purged"]
        if self._dies():
            return None
        return {
            "acknowledged": intake.arrival.acknowledged,
            "desired": self.answers.get(agent) if row.desired_generation else None,
            "cadence_seconds": CADENCE_SECONDS,
            "now": self.timeline.now,
            "watch": ["fleet"],
        }

    def _known(self, row: AgentRow) -> Known:
        return Known(
            row.applied_generation,
            row.rejected_hash,
            row.desired_generation,
            row.generations,
            OWNERS,
            tuple(step.waiting() for step in self.steps if step.agent == row.id and step.ended is None),
            row.proofs,
        )

    def _store(self, row: AgentRow, facts: Facts) -> None:
        if facts.applied is not None:
            row.applied_generation, row.applied_hash = facts.applied.generation, facts.applied.hash
        if facts.rejected is not None:
            row.rejected_hash = facts.rejected.hash
        if facts.proofs is not None:
            row.proofs = facts.proofs
        for ended in facts.ended:
            self._end(ended)

    def _end(self, ended: Ended) -> None:
        step = self._step(ended.step)
        assert step.ended is None, f"step {step.id} ended twice"
        step.ended = ended
        self.on_ended(step)

    def snapshot(self, agent: str, have: str) -> tuple[int, str, bytes | None]:
        """Generation, hash, and the body unless that is what it has."""
        row = self.agents[agent]
        body = None if row.desired_hash == have else body_of(self.states[row.desired_hash])
        return row.desired_generation, row.desired_hash, body


def instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
