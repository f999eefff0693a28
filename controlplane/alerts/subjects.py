"""The subjects of alerts: the agents and namespaces that exist now, and their names. Reads them in two queries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.fleet.models import Agent
from tenants.models import Namespace, Organisation


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that an alert is about: `key` identifies it in states, `place` names it. An agent has no
    organisation."""

    key: str
    place: str
    group_id: int
    agent: str = ""
    namespace_id: int | None = None
    organisation_id: int | None = None


@dataclass(frozen=True, slots=True)
class AgentSeen:
    subject: Subject
    last_seen_at: datetime | None
    conditions: Mapping[str, Mapping[str, Any]]
    clock_skew_seconds: float


@dataclass(frozen=True, slots=True)
class Living:
    """The agents (by id) and namespaces (by primary key) that exist now."""

    agents: Mapping[str, AgentSeen] = field(default_factory=dict)
    namespaces: Mapping[int, Subject] = field(default_factory=dict)


def living() -> Living:
    columns = ("pk", "group_id", "last_seen_at", "conditions", "clock_skew_seconds")
    agents = Agent.objects.filter(revoked_at=None).values_list(*columns)
    existing_namespaces = Namespace.objects.filter(deleted_at=None).exclude(
        organisation__state=Organisation.State.DELETED
    )
    namespaces = existing_namespaces.values_list("pk", "slug", "group_id", "organisation_id", "organisation__slug")
    return Living(
        {pk: AgentSeen(Subject(f"agent {pk}", pk, group, agent=pk), *status) for pk, group, *status in agents},
        {
            pk: Subject(f"namespace {pk}", f"{org}/{slug}", group, "", pk, organisation)
            for pk, slug, group, organisation, org in namespaces
        },
    )
