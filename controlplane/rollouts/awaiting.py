"""Agents' answers: acknowledgements of a rollout's revision, and results of integrity checks.

A rollout has one operation, with a step for every agent that existed when it began. A step is sent, and can end, only
once the rollout has reached its agent.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.fleet.intake import STATE, Ended
from controlplane.fleet.models import OperationStep
from controlplane.fleet.operations import operation_of_agents, steps_end
from controlplane.rollouts.stepping import Integrity
from engine_agent.contracts.words import listed
from tenants.actor import Actor
from tenants.models import Operation

INTEGRITY_SECONDS = 60.0  # how long engines have to check themselves
PROBLEM_LENGTH = 120


def steps_add(operation_id: UUID, agents: Collection[str]) -> None:
    """Add steps for those of these agents that enrolled after the operation began.

    Call it within the rollout's lock.
    """
    operation = Operation.objects.select_for_update(no_key=True).filter(pk=operation_id).first()
    if operation is None:
        return
    known = OperationStep.objects.filter(operation=operation).values_list("agent_id", flat=True)
    missing = sorted({*agents} - {*known})
    if missing:
        OperationStep.objects.bulk_create(
            OperationStep(operation=operation, agent_id=agent, deed=STATE) for agent in missing
        )
        operation.awaited_agents = sorted({*operation.awaited_agents, *missing})
        operation.state, operation.finished_at = Operation.State.RUNNING, None
        operation.save(update_fields=["awaited_agents", "state", "finished_at"])


def steps_give_up(operation_id: UUID, note: str, *, now: datetime) -> None:
    """End the waiting steps as failed: the agents' next acknowledgements are about another state."""
    waiting = OperationStep.objects.filter(operation=operation_id, state=OperationStep.State.WAITING)
    step_ids = waiting.order_by("pk").values_list("pk", flat=True)
    steps_end([Ended(step_id, False, note=note) for step_id in step_ids], now=now)


def integrity_ask(*, actor: Actor, scope: str, engines: Collection[str], now: datetime) -> Operation:
    return operation_of_agents(
        actor=actor, deed="integrity", agents=engines, scope=scope, now=now, seconds=INTEGRITY_SECONDS
    )


@dataclass(frozen=True, slots=True)
class IntegrityFound:
    """The result of integrity checks. `details` is for operators only: a problem may concern any organisation."""

    state: Integrity
    words: str = ""
    details: str = ""


def integrity_found(operation_id: str | None) -> IntegrityFound:
    """Return the result of a check. An engine that does not report its findings has not passed."""
    if operation_id is None:
        return IntegrityFound("not asked")
    steps = list(OperationStep.objects.filter(operation=UUID(operation_id)).order_by("agent_id"))
    broken = [step for step in steps if _problems(step.receipt)]
    if broken:
        summary = "; ".join(f"{step.agent_id} found {_counted(step.receipt)}" for step in broken)
        details = "; ".join(f"{step.agent_id}: {_said(step.receipt)}" for step in broken)
        return IntegrityFound("failed", summary, details)
    if any(step.state == OperationStep.State.WAITING for step in steps):
        return IntegrityFound("running")
    silent = [step.agent_id for step in steps if step.state != OperationStep.State.DONE or not _has_told(step.receipt)]
    return IntegrityFound("unknown", ", ".join(silent)) if silent else IntegrityFound("passed")


def _has_told(receipt: Mapping[str, Any] | None) -> bool:
    return isinstance(_result(receipt).get("problems"), list)


def _problems(receipt: Mapping[str, Any] | None) -> list[Any]:
    """Return the problems that an engine found; none if it could not check or did not answer."""
    problems = _result(receipt).get("problems")
    return problems if isinstance(problems, list) else []


def _result(receipt: Mapping[str, Any] | None) -> Mapping[str, Any]:
    result = (receipt or {}).get("result")
    return result if isinstance(result, dict) else {}


def _said(receipt: Mapping[str, Any] | None) -> str:
    problems = [str(problem)[:PROBLEM_LENGTH] for problem in _problems(receipt)]
    return listed(problems, 1, total=_count(receipt))


def _counted(receipt: Mapping[str, Any] | None) -> str:
    count = _count(receipt)
    return f"{count} problem{'s' if count > 1 else ''}"


def _count(receipt: Mapping[str, Any] | None) -> int:
    reported_count = _result(receipt).get("problem_count")
    return max(len(_problems(receipt)), reported_count if type(reported_count) is int else 0)
