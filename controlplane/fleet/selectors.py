"""Queries for agents and join tokens. Change nothing."""

import re
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q, QuerySet

from controlplane.fleet.cadence import cadence_seconds, stale_after_seconds
from controlplane.fleet.health import AHEAD, AgentState
from controlplane.fleet.models import Agent, JoinToken
from tenants.errors import NotFound
from tenants.models.organisations import SLUG_PATTERN

_ID = re.compile(SLUG_PATTERN)


def fleet_size() -> int:
    """Return how many agents may report, which sets the cadence."""
    return Agent.objects.filter(revoked_at=None).count()


def fleet_cadence_seconds() -> float:
    return cadence_seconds(fleet_size())


def agents() -> "QuerySet[Agent]":
    """Return all agents with their groups, revoked ones included."""
    return Agent.objects.select_related("group")


def agents_living() -> "QuerySet[Agent]":
    return agents().filter(revoked_at=None)


def agent_for(agent_id: str) -> Agent:
    # Do not query for a malformed id: PostgreSQL rejects some of them.
    agent = agents().filter(pk=agent_id).first() if _ID.fullmatch(agent_id) else None
    if agent is None:
        raise NotFound("agent")
    return agent


def agents_in_state(state: AgentState, *, now: datetime, cadence: float) -> "QuerySet[Agent]":
    """Return the agents in this state, by the rules of health.agent_state as a query."""
    is_recent = Q(
        last_seen_at__gte=now - timedelta(seconds=stale_after_seconds(cadence)), last_seen_at__lte=now + AHEAD
    )
    living = agents_living()
    if state == "revoked":
        return agents().filter(revoked_at__isnull=False)
    if state == "enrolled":
        return living.filter(last_seen_at=None)
    if state == "stale":
        return living.exclude(last_seen_at=None).exclude(is_recent)
    recent_agents = living.filter(is_recent)
    if state == "starting":
        return recent_agents.filter(Q(heartbeat__engine__state=state) | Q(heartbeat__engine__state__isnull=True))
    if state in ("down", "failed"):
        return recent_agents.filter(heartbeat__engine__state=state)
    up = recent_agents.filter(heartbeat__engine__state__in=["ready", "draining"])
    is_draining = Q(is_draining=True) | Q(heartbeat__engine__state="draining")
    return up.filter(is_draining) if state == "draining" else up.exclude(is_draining)


def join_tokens() -> "QuerySet[JoinToken]":
    """Return the tokens that are not revoked, expired and spent ones included."""
    return JoinToken.objects.filter(revoked_at=None).select_related("group")


def join_token_for(token_id: UUID) -> JoinToken:
    join_token = join_tokens().filter(pk=token_id).first()
    if join_token is None:
        raise NotFound("join token")
    return join_token


def gateway_address() -> str | None:
    """Return the address for applications that the first gateway reports, or None if no gateway has reported."""
    gateway = agents_living().filter(kind="gateway").exclude(last_seen_at=None).order_by("id").first()
    return (gateway.about.get("address") or None) if gateway else None
