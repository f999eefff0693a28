"""Assign each agent's desired state: whenever its hash changes, under a generation above every one before.

Only one planner runs at a time, and an assignment counts only if no other was made since the agent was read. Operation
steps are read in the same moment as the state, so the assigned state contains the changes that they are about.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import OperationalError, connection, transaction

from controlplane.database.locks import advisory_unlock
from controlplane.fleet.models import Agent, OperationStep
from controlplane.rollouts.desired import Holder, OpenRollout, rollouts_open, snapshots_wanted
from controlplane.rollouts.plan import STATE
from controlplane.rollouts.reach import held_revision
from engine_agent.contracts.protocol import Snapshot
from tenants.consistent_reads import consistent_read
from tenants.locks import is_busy

PLANNING_LOCK = 7_446_220_461  # any number that no other code locks
GENERATIONS_KEPT = 4_000  # an hour at more than one a second; acknowledgements of older ones are not recognised
MOST_BELIEVED = 2**62  # an agent that claims a higher generation gets none above it


@dataclass(frozen=True, slots=True)
class Held:
    """An agent's desired state when it was read, and the highest generation that the agent reports."""

    holder: Holder
    hash: str
    generation: int
    told_generation: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A new desired state for an agent. It is dropped if the agent's generation is no longer `seen`."""

    agent_id: str
    seen: int
    generation: int
    hash: str


@dataclass(frozen=True, slots=True)
class PlannedStep:
    step_id: int
    agent_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A step of the action `state` that has no generation planned yet."""

    step_id: int
    agent_id: str
    operation_id: str


@dataclass(frozen=True, slots=True)
class Planned:
    """The agents that got a new desired state, and every agent's snapshot."""

    assigned: frozenset[str]
    steps: int
    snapshots: Mapping[str, Snapshot]


class PlanningBusy(Exception):
    """Another planner has run for longer than the lock timeout. Changes that its plan misses are in the next one."""


@contextmanager
def planning() -> Iterator[None]:
    """Keep other planners out until the end of the block.

    Raise PlanningBusy after the usual lock timeout: settings/django.py.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [PLANNING_LOCK])
    except OperationalError as error:
        if is_busy(error):
            raise PlanningBusy from error
        raise
    try:
        yield
    finally:
        advisory_unlock(PLANNING_LOCK)


def states_assign(*, now: datetime) -> Planned:
    """Assign the desired state of every agent, within `planning()`."""
    with consistent_read():
        steps, states, rollouts = _steps_waiting(), _held(), rollouts_open()
        snapshots = snapshots_wanted([state.holder for state in states], rollouts, now=now)
    hashes = {agent: snapshot.hash for agent, snapshot in snapshots.items()}
    assignments = assignments_plan(states, hashes)
    generations = {state.holder.agent_id: state.generation for state in states}
    generations |= {assignment.agent_id: assignment.generation for assignment in assignments}
    planned = steps_plan(steps, states, rollouts, generations)
    if not assignments and not planned:
        return Planned(frozenset(), 0, snapshots)
    with transaction.atomic():
        assigned = _assign(assignments, now=now)
        _steps_write(planned, hashes)
    return Planned(frozenset(assigned), len(planned), snapshots)


def assignments_plan(states: Iterable[Held], hashes: Mapping[str, str]) -> list[Assignment]:
    """Return new assignments for agents with another hash, or that report a higher generation than ours.

    The second happens after a backup was restored.
    """
    assignments = []
    for state in states:
        hash_, reported_generation = hashes[state.holder.agent_id], min(state.told_generation, MOST_BELIEVED)
        if hash_ != state.hash or reported_generation > state.generation:
            generation = max(state.generation, reported_generation) + 1
            assignments.append(Assignment(state.holder.agent_id, state.generation, generation, hash_))
    return assignments


def steps_plan(
    steps: Iterable[WaitingStep],
    states: Iterable[Held],
    rollouts: Sequence[OpenRollout],
    generations: Mapping[str, int],
) -> list[PlannedStep]:
    """Return the generation that completes each step.

    A step that waits for a rollout is planned only once its agent is reached.
    """
    holders = {state.holder.agent_id: state.holder for state in states}
    awaited = {
        open_rollout.operation_id: open_rollout.view
        for open_rollout in rollouts
        if open_rollout.operation_id is not None
    }
    planned_steps = []
    for step in steps:
        holder = holders.get(step.agent_id)
        if holder is None:
            continue  # revoked, or enrolled since
        rollout = awaited.get(step.operation_id)
        if rollout is None or held_revision(rollout, holder.agent_id, holder.kind) is None:
            planned_steps.append(PlannedStep(step.step_id, step.agent_id, generations[step.agent_id]))
    return planned_steps


def _steps_waiting() -> list[WaitingStep]:
    waiting = OperationStep.objects.filter(state=OperationStep.State.WAITING, deed=STATE, generation=None)
    rows: Any = waiting.values_list("pk", "agent_id", "operation_id")
    return [WaitingStep(pk, agent, str(operation)) for pk, agent, operation in rows]


def _held() -> list[Held]:
    columns = ("desired_hash", "desired_generation", "applied_generation", "heartbeat__applied__generation")
    rows: Any = Agent.objects.filter(revoked_at=None).order_by("pk").values_list("pk", "kind", "group_id", *columns)
    return [
        Held(Holder(pk, kind, group_id), hash_, generation, max(applied, _number(heartbeat_generation)))
        for pk, kind, group_id, hash_, generation, applied, heartbeat_generation in rows
    ]


def _number(value: Any) -> int:
    return value if type(value) is int else 0


# Rows are locked in the order of their ids, as all code that changes several of them does.
_ASSIGN = """
WITH wanted AS (
    SELECT * FROM unnest(%(agents)s::text[], %(seen)s::bigint[], %(numbers)s::bigint[], %(hashes)s::text[])
        AS each (id, seen, number, hash)
), locked AS MATERIALIZED (
    SELECT agent.id, wanted.number, wanted.hash FROM fleet_agent agent JOIN wanted USING (id)
    WHERE agent.desired_generation = wanted.seen AND agent.revoked_at IS NULL
    ORDER BY agent.id FOR NO KEY UPDATE OF agent
), changed AS (
    UPDATE fleet_agent agent SET desired_hash = locked.hash, desired_generation = locked.number, desired_at = %(now)s
    FROM locked WHERE agent.id = locked.id
), forgotten AS (
    DELETE FROM fleet_agentgeneration old USING locked
    WHERE old.agent_id = locked.id AND old.number = locked.number - %(kept)s
)
INSERT INTO fleet_agentgeneration (agent_id, number, hash, at) SELECT id, number, hash, %(now)s FROM locked
ON CONFLICT (agent_id, number) DO UPDATE SET hash = excluded.hash, at = excluded.at
RETURNING agent_id
"""

_STEPS = """
UPDATE fleet_operationstep step SET generation = planned.generation
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[]) AS planned (id, agent, generation, hash),
    fleet_agent agent
WHERE step.id = planned.id AND step.generation IS NULL
    AND agent.id = planned.agent AND agent.desired_generation = planned.generation AND agent.desired_hash = planned.hash
"""


def _assign(assignments: Collection[Assignment], *, now: datetime) -> list[str]:
    """Return the agents for which the assignment counts."""
    if not assignments:
        return []
    columns: dict[str, list[Any]] = {
        "agents": [assignment.agent_id for assignment in assignments],
        "seen": [assignment.seen for assignment in assignments],
        "numbers": [assignment.generation for assignment in assignments],
        "hashes": [assignment.hash for assignment in assignments],
    }
    with connection.cursor() as cursor:
        cursor.execute(_ASSIGN, {**columns, "now": now, "kept": GENERATIONS_KEPT})
        return [agent for (agent,) in cursor.fetchall()]


def _steps_write(steps: Sequence[PlannedStep], hashes: Mapping[str, str]) -> None:
    """Write generations only where exactly the planned state is desired.

    Another planner may have given the same number to a state from before the operation.
    """
    if steps:
        rows = [(step.step_id, step.agent_id, step.generation, hashes[step.agent_id]) for step in steps]
        with connection.cursor() as cursor:
            cursor.execute(_STEPS, [list(column) for column in zip(*rows, strict=True)])
