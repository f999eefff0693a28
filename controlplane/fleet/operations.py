"""Operations that agents must prove. Each agent's step ends by its report, at its deadline, or with its revocation.

Services: they write. intake.py decides which reports count. Locks are taken in one order everywhere: agents by name,
then steps by number, then operations.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from controlplane.fleet.columns import json_column, rows_update
from controlplane.fleet.intake import STATE, Ended, Proof, WaitingStep, steps_proved
from controlplane.fleet.models import Agent, AgentGeneration, OperationStep, PurgeProof
from engine_agent.contracts.wire import Operated
from tenants.actor import Actor
from tenants.models import Namespace, Operation

BATCH = 1_000
WAITING = OperationStep.State.WAITING
Receipt = dict[str, Any]


def steps_begin(operation: Operation, group_ids: Collection[int]) -> list[str]:
    """Add a step for every agent of these groups: each must prove that it applied what this transaction leaves."""
    if not group_ids:
        return []
    group_agents = Agent.objects.filter(group__in=group_ids, revoked_at=None)
    agents = list(group_agents.order_by("pk").values_list("pk", flat=True))
    steps = (OperationStep(operation=operation, agent_id=agent, deed=STATE) for agent in agents)
    OperationStep.objects.bulk_create(steps, batch_size=BATCH)
    return agents


def operation_of_agents(
    *,
    actor: Actor,
    deed: Operated,
    agents: Collection[str],
    scope: str,
    now: datetime,
    seconds: float,
    arguments: Mapping[str, Any] | None = None,
) -> Operation:
    """Create an operation that asks these agents for one action, to be completed within `seconds`."""
    assert agents
    operation = Operation.objects.create(
        kind=deed,
        scope=scope,
        state=Operation.State.RUNNING,
        awaited_agents=sorted(agents),
        created_by=actor.public_name,
        created_at=now,
    )
    deadline = now + timedelta(seconds=seconds)
    steps = (
        OperationStep(
            operation=operation, agent_id=agent, deed=deed, arguments=dict(arguments or {}), deadline=deadline
        )
        for agent in sorted(agents)
    )
    OperationStep.objects.bulk_create(steps, batch_size=BATCH)
    return operation


def steps_waiting(agents: Collection[str]) -> dict[str, list[WaitingStep]]:
    """Return the steps that each of these agents owes, oldest first."""
    steps_by_agent = defaultdict[str, list[WaitingStep]](list)
    for step in _waiting(OperationStep.objects.filter(agent__in=agents)):
        steps_by_agent[step.agent_id].append(_step_view(step))
    return steps_by_agent


def proofs_kept(agents: Collection[str]) -> dict[str, list[Proof]]:
    """Return the purges that each agent has proved without having acknowledged the state that requested them."""
    rows = list(PurgeProof.objects.filter(agent__in=agents).order_by("pk"))
    owners = namespace_organisations({row.namespace_id for row in rows})
    proofs_by_agent = defaultdict[str, list[Proof]](list)
    for row in rows:
        if row.namespace_id in owners:
            owner = owners[row.namespace_id]
            proofs_by_agent[row.agent_id].append(Proof(row.namespace_id, owner, row.epoch, row.blocks, row.bytes))
    return proofs_by_agent


def proofs_replace(proofs_by_agent: Mapping[str, Sequence[Proof]], *, now: datetime) -> None:
    """Replace all stored proofs of each agent in `proofs_by_agent`."""
    if not proofs_by_agent:
        return
    PurgeProof.objects.filter(agent__in=proofs_by_agent).delete()
    PurgeProof.objects.bulk_create(
        (
            PurgeProof(
                agent_id=agent,
                namespace_id=proof.namespace,
                epoch=proof.epoch,
                blocks=proof.blocks,
                bytes=proof.bytes,
                at=now,
            )
            for agent, proofs in proofs_by_agent.items()
            for proof in proofs
        ),
        batch_size=BATCH,
    )


def namespace_organisations(ids: Collection[int]) -> dict[int, int]:
    """Return each existing namespace's organisation. A deleted one exists until no agent has any of its blocks."""
    return dict(Namespace.objects.filter(pk__in=ids).values_list("pk", "organisation_id")) if ids else {}


def agents_lock(ids: Collection[str]) -> "QuerySet[Agent]":
    """Lock these agents, so that only one transaction at a time records their state. Foreign keys stay possible."""
    return Agent.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")


# Ending steps


def steps_end(ended: Collection[Ended], *, now: datetime) -> int:
    """End these steps and return how many, inside the transaction that makes it true.

    A step that ended before keeps its receipt.
    """
    outcomes = {outcome.step: outcome for outcome in ended}
    if not outcomes:
        return 0
    locked_steps = OperationStep.objects.select_for_update(of=("self",), no_key=True).select_related("operation")
    locked_steps = locked_steps.only("agent_id", "operation_id", "operation__scope").filter(
        pk__in=outcomes, state=WAITING
    )
    receipts = defaultdict[UUID, list[Receipt]](list)
    columns = list[tuple[int, str, str]]()
    for step in locked_steps.order_by("pk"):
        outcome = outcomes[step.pk]
        receipt = _receipt(step, outcome, now=now)
        receipts[step.operation_id].append(receipt)
        state = OperationStep.State.DONE if outcome.is_done else OperationStep.State.FAILED
        columns.append((step.pk, state.value, json_column(receipt)))
    if columns:
        rows_update(OperationStep, "id bigint, state text, receipt jsonb", columns, done_at=now)
        _operations_advance(receipts, now=now)
    return len(columns)


def _receipt(step: OperationStep, outcome: Ended, *, now: datetime) -> Receipt:
    receipt: Receipt = {
        "agent": step.agent_id,
        "scope": step.operation.scope,
        "blocks": outcome.blocks,
        "bytes": outcome.bytes,
        "at": now.isoformat(),
    }
    return receipt | ({"note": outcome.note} if outcome.note else {}) | _result(outcome)


def _result(outcome: Ended) -> Receipt:
    return {"result": dict(outcome.result)} if outcome.result else {}


def _operations_advance(receipts: Mapping[UUID, Sequence[Receipt]], *, now: datetime) -> None:
    locked_operations = Operation.objects.select_for_update(no_key=True).filter(
        pk__in=receipts, state=Operation.State.RUNNING
    )
    operations = list(locked_operations.order_by("pk"))
    failed = _failed(receipts)
    for operation in operations:
        new_receipts = receipts[operation.pk]
        reported_agents = {receipt["agent"] for receipt in new_receipts}
        operation.receipts = [*operation.receipts, *new_receipts]
        operation.awaited_agents = [agent for agent in operation.awaited_agents if agent not in reported_agents]
        if not operation.awaited_agents:
            operation.state = Operation.State.FAILED if operation.pk in failed else Operation.State.DONE
            operation.finished_at = now
    Operation.objects.bulk_update(operations, ["receipts", "awaited_agents", "state", "finished_at"], batch_size=100)


def _failed(operations: Iterable[UUID]) -> set[UUID]:
    failed = OperationStep.objects.filter(operation__in=list(operations), state=OperationStep.State.FAILED)
    return set(failed.values_list("operation_id", flat=True).distinct())


def steps_drop(agent: str, *, now: datetime) -> int:
    """End all steps of an agent that leaves the fleet, inside the transaction that revokes it."""
    return steps_end(_all_of(OperationStep.objects.filter(agent=agent), True, "revoked"), now=now)


def steps_sweep(*, now: datetime) -> int:
    """End steps that are late, missed or of revoked agents, and return how many. Safe to run in several processes."""
    with transaction.atomic():
        dropped = _all_of(OperationStep.objects.filter(agent__revoked_at__isnull=False), True, "revoked")
        late = _all_of(OperationStep.objects.filter(deadline__lt=now), False, "no receipt came before the deadline")
        ended_count = steps_end([*dropped, *late], now=now)
    return ended_count + steps_settle(now=now)


def _all_of(steps: "QuerySet[OperationStep]", is_done: bool, note: str) -> list[Ended]:
    step_ids = steps.filter(state=WAITING).order_by("pk").values_list("pk", flat=True)
    return [Ended(step_id, is_done, note=note) for step_id in step_ids[:BATCH]]


def steps_settle(*, now: datetime, agents: Collection[str] | None = None) -> int:
    """End steps that agents have acknowledged already: an unchanged state causes no new acknowledgement."""
    due = _proved_already() if agents is None else _proved_already().filter(agent__in=agents)
    names = sorted(set(due.values_list("agent_id", flat=True)[:BATCH]))
    if not names:
        return 0
    with transaction.atomic():
        generations = {agent.pk: agent.applied_generation for agent in agents_lock(names).only("applied_generation")}
        proofs_by_agent = proofs_kept(names)
        ended, remaining_proofs = list[Ended](), dict[str, Sequence[Proof]]()
        steps = _waiting(_proved_already().filter(agent__in=names))
        for agent, agent_steps in groupby(
            sorted(steps, key=lambda step: step.agent_id), key=lambda step: step.agent_id
        ):
            proofs = proofs_by_agent.get(agent, [])
            completed, remaining = steps_proved(map(_step_view, agent_steps), proofs, generation=generations[agent])
            ended += completed
            if len(remaining) < len(proofs):
                remaining_proofs[agent] = remaining
        proofs_replace(remaining_proofs, now=now)
        return steps_end(ended, now=now)


def _proved_already() -> "QuerySet[OperationStep]":
    matching_generation = AgentGeneration.objects.filter(
        agent=OuterRef("agent"), number=OuterRef("agent__applied_generation"), hash=OuterRef("agent__applied_hash")
    )
    is_applied = Q(state=WAITING, deed=STATE, generation__lte=F("agent__applied_generation"))
    return OperationStep.objects.filter(is_applied & Exists(matching_generation))


def _waiting(steps: "QuerySet[OperationStep]") -> "QuerySet[OperationStep]":
    columns = (
        "agent_id",
        "deed",
        "generation",
        "operation_id",
        "operation__namespace_id",
        "operation__organisation_id",
    )
    return steps.filter(state=WAITING).select_related("operation").only(*columns).order_by("pk")


def _step_view(step: OperationStep) -> WaitingStep:
    return WaitingStep(
        id=step.pk,
        operation=str(step.operation_id),
        deed=step.deed,
        generation=step.generation,
        namespace=step.operation.namespace_id,
        organisation=step.operation.organisation_id,
    )
