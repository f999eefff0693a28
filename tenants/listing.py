"""Searchable lists for people, in pages, with a constant number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Count, Model, Q, QuerySet

from tenants.access import audit_visible, keys_of, members_of, namespaces_visible, organisations_visible
from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.homes import NamespaceHome, namespace_home
from tenants.levels import FLEET, level_of
from tenants.models import ApiKey, AuditRecord, Member, Namespace, Organisation, Pin

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Listed:
    """An organisation in a list."""

    pk: int
    slug: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Holdings:
    """Counts of an organisation's objects, shown before it is changed or deleted."""

    namespaces: int
    keys: int
    members: int
    pins: int


@dataclass(frozen=True, slots=True)
class TrailSought:
    """A search in the audit trail. Empty members do not filter."""

    verb: str = ""
    who: str = ""
    organisation: str = ""
    since: datetime | None = None
    until: datetime | None = None
    words: str = ""


def organisations_found(actor: Actor, search: str) -> list[Listed]:
    """Return all matching organisations with few columns: sorting by counts from elsewhere needs all rows."""
    organisations = _fitting(organisations_visible(actor), search, "slug", "name").order_by("slug")
    return [Listed(*row) for row in organisations.values_list("pk", "slug", "name", "state")]


def namespaces_counted(organisations: Sequence[int]) -> dict[int, int]:
    existing = Namespace.objects.filter(organisation__in=organisations, deleted_at=None)
    return dict(existing.values_list("organisation").annotate(Count("pk")))


def namespaces_found(actor: Actor, organisation: Organisation, search: str) -> "QuerySet[Namespace]":
    return _fitting(namespaces_visible(actor, organisation), search, "slug", "name").order_by("slug")


def namespaces_in_force(namespaces: Any) -> list[NamespaceHome]:
    """Return a page of namespaces with their effective policies."""
    fleet = level_of(FLEET)
    rows = namespaces.select_related("policy_level", "organisation__policy_level")
    return [namespace_home(row, fleet) for row in rows]


def keys_found(organisation: Organisation, search: str) -> "QuerySet[ApiKey]":
    """Return matching keys, newest first, so that a new key is on top."""
    return _fitting(keys_of(organisation), search, "name", "prefix").order_by("-created_at", "pk")


def members_found(organisation: Organisation, search: str) -> "QuerySet[Member]":
    return _fitting(members_of(organisation), search, "email").order_by("email")


def records_found(actor: Actor, organisation: Organisation, search: str) -> "QuerySet[AuditRecord]":
    """Return an organisation's audit records, newest first."""
    within = audit_visible(actor).filter(organisation_id=organisation.pk)
    return _fitting(within, search, "verb", "target").order_by("-seq")


def trail_found(actor: Actor, filters: TrailSought) -> "QuerySet[AuditRecord]":
    """Return all audit records that this actor may see, newest first. Raise NotFound for an unknown organisation."""
    rows = audit_visible(actor)
    if filters.organisation:
        ids = Organisation.objects.filter(slug=filters.organisation).values_list("pk", flat=True)
        if not ids:
            raise NotFound("organisation")
        rows = rows.filter(organisation_id__in=list(ids))
    if filters.verb:
        rows = rows.filter(verb=filters.verb)
    if filters.since is not None:
        rows = rows.filter(at__gte=filters.since)
    if filters.until is not None:
        rows = rows.filter(at__lt=filters.until)
    rows = _fitting(rows, filters.who, "actor_name")
    return _fitting(rows, filters.words, "verb", "target", "request_id", "address").order_by("-seq")


def holdings_of(organisation: Organisation) -> Holdings:
    """Return the counts, in separate queries because joins would multiply them."""
    return Holdings(
        namespaces=organisation.namespaces.filter(deleted_at=None).count(),
        keys=keys_of(organisation).count(),
        members=members_of(organisation).count(),
        pins=Pin.objects.filter(namespace__organisation=organisation, namespace__deleted_at=None).count(),
    )


def _fitting(rows: "QuerySet[Row]", search: str, *fields: str) -> "QuerySet[Row]":
    condition = Q()
    for field in fields:
        condition |= Q(**{f"{field}__icontains": search})
    return rows.filter(condition) if search else rows
