"""Queries for rollouts and the agents they concern. They write nothing."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from controlplane.fleet.models import Agent, OperationStep
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.stepping import Candidate
from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.levels import Place, place_of
from tenants.models import Namespace, Organisation, PolicyLevel, PolicyRevision
from tenants.preview import AgentPool

WITH_ITS_PLACE = ("level__organisation", "level__namespace__organisation")


def rollouts_visible(actor: Actor) -> "QuerySet[Rollout]":
    """Return all rollouts to operators, its own to an organisation, and to a key those of its namespaces."""
    rollouts = Rollout.objects.select_related(*WITH_ITS_PLACE)
    if actor.organisation_id is None:
        return rollouts
    if actor.namespace_ids is not None:
        return rollouts.filter(level__namespace__in=actor.namespace_ids)
    is_own = Q(level__organisation=actor.organisation_id) | Q(level__namespace__organisation=actor.organisation_id)
    return rollouts.filter(is_own)


def rollout_for(actor: Actor, rollout_id: UUID) -> Rollout:
    rollout = rollouts_visible(actor).filter(pk=rollout_id).first()
    if rollout is None:
        raise NotFound("rollout")
    return rollout


def policies_said(rollout: Rollout) -> dict[int, tuple[dict[str, Any], str]]:
    """Return the policy and note of the rollout's revision and of its base, by number. Revision 0 has none."""
    numbers = (rollout.revision, rollout.base_revision)
    rows = PolicyRevision.objects.filter(level=rollout.level_id, number__in=numbers)
    return {number: (policy, note) for number, policy, note in rows.values_list("number", "policy", "note")}


def rollouts_open() -> "QuerySet[Rollout]":
    return Rollout.objects.filter(state__in=Rollout.OPEN)


def acknowledgements(operations: Collection[UUID]) -> dict[UUID | None, tuple[int, int]]:
    """Return for each operation how many of its agents have acknowledged it, and how many it has."""
    steps = OperationStep.objects.filter(operation__in=operations).values("operation")
    counts = steps.annotate(done=Count("pk", filter=Q(state=OperationStep.State.DONE)), every=Count("pk"))
    return {operation: (done, total) for operation, done, total in counts.values_list("operation", "done", "every")}


def is_gone(level: PolicyLevel) -> bool:
    """Return whether the level was deleted, so that no agent needs it any more."""
    scope = place_of(level)
    if scope.namespace is not None and scope.namespace.deleted_at is not None:
        return True
    return scope.organisation is not None and scope.organisation.state == Organisation.State.DELETED


def groups_below(scope: Place) -> set[int]:
    """Return the groups with agents that serve the namespaces below this place."""
    living = Namespace.objects.filter(deleted_at=None)
    if scope.namespace is not None:
        living = living.filter(pk=scope.namespace.pk)
    elif scope.organisation is not None:
        living = living.filter(organisation=scope.organisation)
    return set(living.values_list("group_id", flat=True).distinct())


def agents_of(groups: Collection[int]) -> "QuerySet[Agent]":
    return Agent.objects.filter(revoked_at=None, group__in=groups).order_by("pk")


def candidates_of(scope: Place) -> list[Candidate]:
    return candidates_in(groups_below(scope))


def candidate_of(row: Mapping[str, Any]) -> Candidate:
    return Candidate(row["pk"], row["kind"], row["labels"], row["group_id"])


def candidates_in(groups: Collection[int]) -> list[Candidate]:
    rows = agents_of(groups).values_list("pk", "kind", "labels", "group_id")
    return [Candidate(*row) for row in rows]


def pools_of(scope: Place) -> list[AgentPool]:
    """Return the reported pool of every engine that a policy of this place concerns."""
    rows = agents_of(groups_below(scope)).filter(kind="engine").values_list("pk", "about")
    return [_pool(agent, about) for agent, about in rows]


def _pool(agent: str, about: Mapping[str, Any]) -> AgentPool:
    pool, models = about.get("pool", {}), about.get("models", [])
    return AgentPool(
        agent=agent,
        model=models[0]["name"] if models else "",
        pool_bytes=pool.get("capacity_bytes", 0),
        block_tokens=pool.get("block_tokens", 0),
        block_bytes={kv_dtype: size for kv_dtype, size in pool.get("block_bytes", {}).items() if size},
    )
