"""A rollout as pages and the API show it: its row, its agents and its counters. Changes nothing."""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTransform

from controlplane.fleet.models import OperationStep
from controlplane.rollouts.counting import sides_read
from controlplane.rollouts.evidence import Side
from controlplane.rollouts.models import Rollout
from tenants.actor import Actor

REVOKED = "revoked"  # the note in the receipt of an agent that was revoked


@dataclass(frozen=True, slots=True)
class AgentOfRollout:
    agent: str
    kind: str
    reached: bool
    acknowledged: bool
    why: str | None


def rollouts_shown(rollouts: "QuerySet[Rollout]") -> "QuerySet[Rollout]":
    """Prepare rollouts for a list: without every agent's counters, which may be many."""
    return rollouts.defer("evidence").annotate(findings=KeyTransform("findings", "evidence"))


def rollout_view(rollout: Rollout, findings: Any, *, is_operator: bool) -> dict[str, Any]:
    """Return the rollout as it is shown.

    Only operators see `details`: they may name what another organisation has there.
    """
    return {
        "id": rollout.pk,
        "place": rollout.place,
        "revision": rollout.revision,
        "base_revision": rollout.base_revision,
        "strategy": rollout.strategy,
        "steps": rollout.steps,
        "step": rollout.step,
        "state": rollout.state,
        "why": (rollout.details if is_operator else "") or rollout.why,
        "bake_seconds": rollout.bake_seconds,
        "guards": rollout.guards or None,
        "step_began_at": rollout.step_began_at,
        "baking_since": rollout.baking_since,
        "findings": findings or [],
        "operation": rollout.operation_id,
        "created_by": rollout.created_by,
        "created_at": rollout.created_at,
        "finished_at": rollout.finished_at,
    }


def rollout_detail(rollout: Rollout, actor: Actor) -> dict[str, Any]:
    changed, unchanged = sides_read(rollout.evidence)
    return {
        **rollout_view(rollout, rollout.evidence.get("findings"), is_operator=actor.is_operator),
        "agents": agents_of_rollout(rollout, actor),
        "changed": _side(changed),
        "unchanged": _side(unchanged),
        "bakes": rollout.evidence.get("bakes", []),
    }


def agents_of_rollout(rollout: Rollout, actor: Actor) -> list[AgentOfRollout]:
    """Return the agents that existed when it began or that it reached. Only operators see an agent's problems."""
    steps = OperationStep.objects.filter(operation=rollout.operation_id).order_by("agent_id")
    rows = steps.values_list("agent_id", "agent__kind", "state", "receipt__note", "agent__conditions")
    is_for_all, agents = rollout.strategy == "all", []
    for agent, kind, state, note, conditions in rows:
        is_reached = is_for_all or agent in rollout.reached
        has_acknowledged = is_reached and state == OperationStep.State.DONE and note != REVOKED
        agents.append(AgentOfRollout(agent, kind, is_reached, has_acknowledged, _why(conditions, actor.is_operator)))
    return agents


def _why(conditions: dict[str, Any], is_shown: bool) -> str | None:
    if not is_shown:
        return None
    return next((condition["why"] for condition in conditions.values()), None)


def _side(side: Side) -> dict[str, Any]:
    return {
        "agents": side.agents,
        "requests": side.requests,
        "errors": side.counts.errors,
        "hit_ratio": side.hit_ratio,
        "ttft_p95_seconds": side.ttft_p95,
    }
