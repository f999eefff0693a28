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


def organisations_found(actor: Actor, words: str) -> list[Listed]:
    """Return all matching organisations with few columns: sorting by counts from elsewhere needs all rows."""
    organisations = _fitting(organisations_visible(actor), words, "slug", "name").order_by("slug")
    return [Listed(*row) for row in organisations.values_list("pk", "slug", "name", "state")]


def namespaces_counted(organisations: Sequence[int]) -> dict[int, int]:
    living = Namespace.objects.filter(organisation__in=organisations, deleted_at=None)
    return dict(living.values_list("organisation").annotate(Count("pk")))


def namespaces_found(actor: Actor, organisation: Organisation, words: str) -> "QuerySet[Namespace]":
    return _fitting(namespaces_visible(actor, organisation), words, "slug", "name").order_by("slug")


def namespaces_in_force(namespaces: Any) -> list[NamespaceHome]:
    """Return a page of namespaces with their effective policies."""
    fleet = level_of(FLEET)
    rows = namespaces.select_related("policy_level", "organisation__policy_level")
    return [namespace_home(row, fleet) for row in rows]


def keys_found(organisation: Organisation, words: str) -> "QuerySet[ApiKey]":
    """Return matching keys, newest first, so that a new key is on top."""
    return _fitting(keys_of(organisation), words, "name", "prefix").order_by("-created_at", "pk")


def members_found(organisation: Organisation, words: str) -> "QuerySet[Member]":
    return _fitting(members_of(organisation), words, "email").order_by("email")


def records_found(actor: Actor, organisation: Organisation, words: str) -> "QuerySet[AuditRecord]":
    """Return an organisation's audit records, newest first."""
    within = audit_visible(actor).filter(organisation_id=organisation.pk)
    return _fitting(within, words, "verb", "target").order_by("-seq")


def trail_found(actor: Actor, sought: TrailSought) -> "QuerySet[AuditRecord]":
    """Return all audit records that this actor may see, newest first. Raise NotFound for an unknown organisation."""
    rows = audit_visible(actor)
    if sought.organisation:
        ids = Organisation.objects.filter(slug=sought.organisation).values_list("pk", flat=True)
        if not ids:
            raise NotFound("organisation")
        rows = rows.filter(organisation_id__in=list(ids))
    if sought.verb:
        rows = rows.filter(verb=sought.verb)
    if sought.since is not None:
        rows = rows.filter(at__gte=sought.since)
    if sought.until is not None:
        rows = rows.filter(at__lt=sought.until)
    rows = _fitting(rows, sought.who, "actor_name")
    return _fitting(rows, sought.words, "verb", "target", "request_id", "address").order_by("-seq")


def holdings_of(organisation: Organisation) -> Holdings:
    """Return the counts, in separate queries because joins would multiply them."""
    return Holdings(
        namespaces=organisation.namespaces.filter(deleted_at=None).count(),
        keys=keys_of(organisation).count(),
        members=members_of(organisation).count(),
        pins=Pin.objects.filter(namespace__organisation=organisation, namespace__deleted_at=None).count(),
    )


def _fitting(rows: "QuerySet[Row]", words: str, *fields: str) -> "QuerySet[Row]":
    condition = Q()
    for field in fields:
        condition |= Q(**{f"{field}__icontains": words})
    return rows.filter(condition) if words else rows
