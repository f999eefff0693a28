"""Who shares agents with a namespace, what each holds there and what each lost there. Selectors.

Whose request took a block's place is not told upwards: engines keep that, and tell it in their own admin answer.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q, Sum

from controlplane.analytics.models import Residence
from tenants.models import Namespace

MOST_NEIGHBOURS: Final = 200  # those that hold or lost most


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Over the agents it shares. Blocks are counted since each engine's start."""

    namespace_id: int
    name: str
    resident_bytes: int
    evicted_blocks: int
    quota_blocks: int


def residences_of(namespace: Namespace) -> list[tuple[str, int, datetime]]:
    """(agent, bytes, when it was told)."""
    rows = Residence.objects.filter(namespace_id=namespace.pk).order_by("agent")
    return list(rows.values_list("agent", "resident_bytes", "at"))


def neighbours_of(namespace: Namespace) -> list[Neighbour]:
    """This namespace among them. Those of other organisations too: for operators alone."""
    agents = Residence.objects.filter(namespace_id=namespace.pk).values("agent")
    counts = Residence.objects.filter(agent__in=agents).values("namespace_id")
    held, lost = Sum("resident_bytes"), Sum("evicted_blocks")
    rows = list(
        counts.annotate(held=held, evicted=lost, quota=Sum("quota_blocks"))
        .filter(Q(held__gt=0) | Q(evicted__gt=0) | Q(namespace_id=namespace.pk))
        .order_by("-held", "-evicted")[:MOST_NEIGHBOURS]
    )
    names = _names([row["namespace_id"] for row in rows])
    return [
        Neighbour(
            row["namespace_id"],
            names.get(row["namespace_id"], "a deleted namespace"),
            int(row["held"]),
            int(row["evicted"]),
            int(row["quota"]),
        )
        for row in rows
    ]


def _names(ids: list[int]) -> dict[int, str]:
    rows = Namespace.objects.filter(pk__in=ids).values_list("pk", "organisation__slug", "slug")
    return {pk: f"{org}/{ns}" for pk, org, ns in rows}
