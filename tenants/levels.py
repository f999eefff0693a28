"""The three levels of policy as rows: found, locked, and read as the chain that is in force. Reads and locks only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection

from tenants.models import Namespace, Organisation, PolicyLevel
from tenants.policy import Below


@dataclass(frozen=True, slots=True)
class Place:
    """Whose policy is meant: the fleet's, an organisation's, or one of its namespaces'."""

    organisation: Organisation | None = None
    namespace: Namespace | None = None

    @property
    def name(self) -> str:
        if self.organisation is None:
            return "fleet"
        return self.organisation.slug if self.namespace is None else f"{self.organisation.slug}/{self.namespace.slug}"


FLEET = Place()


def level_of(place: Place) -> PolicyLevel:
    if place.namespace is not None:
        return PolicyLevel.objects.get(namespace=place.namespace)
    if place.organisation is not None:
        return PolicyLevel.objects.get(organisation=place.organisation)
    level, _ = PolicyLevel.objects.get_or_create(kind=PolicyLevel.Kind.FLEET)
    return level


def levels_above(place: Place) -> list[PolicyLevel]:
    """What a place inherits from, outermost first."""
    above = [] if place.organisation is None else [level_of(FLEET)]
    if place.namespace is not None:
        above.append(level_of(Place(place.organisation)))
    return above


def level_lock(place: Place) -> tuple[PolicyLevel, list[PolicyLevel]]:
    """The level, for writing, and those above it, which must not change meanwhile. Always from the outermost in."""
    above = levels_above(place)
    for level in above:
        _share(level)
        level.refresh_from_db()
    level = level_of(place)
    return PolicyLevel.objects.select_for_update().get(pk=level.pk), above


def _share(level: PolicyLevel) -> None:
    with connection.cursor() as cursor:  # many may publish below at once: Django itself only knows exclusive locks
        cursor.execute("SELECT 1 FROM tenants_policylevel WHERE id = %s FOR SHARE", [level.pk])


def namespaces_below(place: Place, *, group_ids: "set[int] | None" = None) -> Iterator[Below]:
    """Living namespaces in one query, whatever their number."""
    living = Namespace.objects.filter(deleted_at=None).exclude(organisation__state=Organisation.State.DELETED)
    if place.organisation is not None:
        living = living.filter(organisation=place.organisation)
    if place.namespace is not None:
        living = living.filter(pk=place.namespace.pk)
    if group_ids is not None:
        living = living.filter(group_id__in=group_ids)
    rows: Any = living.order_by("pk").values_list(
        "organisation_id",
        "organisation__slug",
        "pk",
        "slug",
        "group_id",
        "organisation__policy_level__policy",
        "policy_level__policy",
    )
    for row in rows.iterator(chunk_size=5000):
        yield Below(*row)
