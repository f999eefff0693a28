"""What alerts are about: agents and namespaces that are there now, and how each is named. Reads, in two queries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.fleet.models import Agent
from tenants.models import Namespace, Organisation


@dataclass(frozen=True, slots=True)
class Subject:
    """`key` is how states name it, `place` how people do. Of an agent: no organisation."""

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
    """Everything that is there: agents by their id, namespaces by their number."""

    agents: Mapping[str, AgentSeen] = field(default_factory=dict)
    namespaces: Mapping[int, Subject] = field(default_factory=dict)


def living() -> Living:
    columns = ("pk", "group_id", "last_seen_at", "conditions", "clock_skew_seconds")
    agents = Agent.objects.filter(revoked_at=None).values_list(*columns)
    there = Namespace.objects.filter(deleted_at=None).exclude(organisation__state=Organisation.State.DELETED)
    namespaces = there.values_list("pk", "slug", "group_id", "organisation_id", "organisation__slug")
    return Living(
        {pk: AgentSeen(Subject(f"agent {pk}", pk, group, agent=pk), *seen) for pk, group, *seen in agents},
        {
            pk: Subject(f"namespace {pk}", f"{org}/{slug}", group, "", pk, organisation)
            for pk, slug, group, organisation, org in namespaces
        },
    )
