"""Rows of the three policy levels: look up, lock, and read them as the effective chain. Reads and locks only."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.locks import namespaces_lock, organisations_lock
from tenants.models import Namespace, Organisation, PolicyLevel
from tenants.policy import Below

Key = tuple[int | None, int | None]  # ids of organisation and namespace


@dataclass(frozen=True, slots=True)
class Place:
    """The owner of a policy: the fleet, an organisation, or one of its namespaces."""

    organisation: Organisation | None = None
    namespace: Namespace | None = None

    @property
    def key(self) -> Key:
        """The key of its row."""
        organisation = None if self.organisation is None else self.organisation.pk
        return organisation, None if self.namespace is None else self.namespace.pk

    @property
    def name(self) -> str:
        if self.organisation is None:
            return "fleet"
        return self.organisation.slug if self.namespace is None else f"{self.organisation.slug}/{self.namespace.slug}"


FLEET = Place()


def level_of(place: Place) -> PolicyLevel:
    if place.organisation is None:
        return PolicyLevel.objects.get_or_create(kind=PolicyLevel.Kind.FLEET)[0]
    owner = {"organisation": place.organisation} if place.namespace is None else {"namespace": place.namespace}
    level = PolicyLevel.objects.filter(**owner).first()
    if level is None:  # removed since the caller looked it up
        raise NotFound("policy")
    return level


def place_of(level: PolicyLevel) -> Place:
    """Return the owner of a level. No query is needed if its relations are loaded."""
    if level.namespace is not None:
        return Place(level.namespace.organisation, level.namespace)
    return Place(level.organisation)


def levels_of(place: Place) -> list[PolicyLevel]:
    """Return the levels that a place inherits, outermost first, and its own. One query reads them at one moment."""
    organisation_id, namespace_id = place.key
    owners = Q(kind=PolicyLevel.Kind.FLEET)
    keys: list[Key] = [FLEET.key]
    if organisation_id is not None:
        owners |= Q(organisation=organisation_id)
        keys.append((organisation_id, None))
    if namespace_id is not None:
        owners |= Q(namespace=namespace_id)
        keys.append((None, namespace_id))
    found = {(one.organisation_id, one.namespace_id): one for one in PolicyLevel.objects.filter(owners)}
    if FLEET.key not in found:
        found[FLEET.key] = level_of(FLEET)
    if not all(key in found for key in keys):  # removed since the caller looked it up
        raise NotFound("policy")
    return [found[key] for key in keys]


@dataclass(frozen=True, slots=True)
class Locked:
    """A level locked for writing, those above it locked against change, and its current organisation."""

    level: PolicyLevel
    above: tuple[PolicyLevel, ...]
    organisation: Organisation | None


def levels_lock(places: Sequence[Place], *, actor: Actor) -> list[Locked]:
    """Lock levels in the order of `locks.py`; each level is one object throughout.

    The fleet's level gets only a shared lock unless it is among them, so that organisations can publish at the same
    time.
    """
    fleet = fleet_lock() if FLEET in places else fleet_hold()
    named = {place.organisation.pk for place in places if place.organisation is not None}
    organisations = {one.pk: one for one in organisations_lock(named, actor=actor)}
    namespaces_lock({place.namespace.pk for place in places if place.namespace is not None})
    owners = Q(organisation__in={place.key[0] for place in places}) | Q(
        namespace__in={place.key[1] for place in places}
    )
    levels = PolicyLevel.objects.select_for_update().filter(owners).order_by("pk")
    held = {(level.organisation_id, level.namespace_id): level for level in levels}
    return [_locked(place, fleet, held, organisations) for place in places]


def _locked(
    place: Place, fleet: PolicyLevel, held: dict[Key, PolicyLevel], organisations: dict[int, Organisation]
) -> Locked:
    organisation_id, namespace_id = place.key
    if organisation_id is None:
        return Locked(fleet, (), None)
    own, organisation = held[organisation_id, None], organisations[organisation_id]
    if namespace_id is None:
        return Locked(own, (fleet,), organisation)
    return Locked(held[None, namespace_id], (fleet, own), organisation)


def fleet_lock() -> PolicyLevel:
    """Lock the fleet's level exclusively until commit, before all other locks.

    No other writer can publish or create.
    """
    return PolicyLevel.objects.select_for_update(no_key=True).get(pk=level_of(FLEET).pk)


def levels_hold(
    organisations: Iterable[Organisation], *, actor: Actor
) -> dict[int, tuple[Organisation, list[PolicyLevel]]]:
    """Lock the organisations until commit, and return each with the levels that its namespaces inherit."""
    fleet, ids = fleet_hold(), {one.pk for one in organisations}
    locked = organisations_lock(ids, actor=actor)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM tenants_policylevel WHERE organisation_id = ANY(%s) ORDER BY id FOR SHARE", [sorted(ids)]
        )
    levels = {one.organisation_id: one for one in PolicyLevel.objects.filter(organisation__in=ids)}
    return {one.pk: (one, [fleet, levels[one.pk]]) for one in locked}


def fleet_hold() -> PolicyLevel:
    """Lock the fleet's level against change, before all other locks. Many transactions may share this lock."""
    return _held(level_of(FLEET))


def _held(level: PolicyLevel) -> PolicyLevel:
    with connection.cursor() as cursor:  # Django supports only exclusive locks
        cursor.execute("SELECT 1 FROM tenants_policylevel WHERE id = %s FOR SHARE", [level.pk])
    level.refresh_from_db()
    return level


def namespaces_by_place(places: Sequence[Place]) -> dict[Key, list[Below]]:
    """Return the existing namespaces, each under its nearest place above, without those that are a place themselves."""
    keys = {place.key for place in places}
    upper = [place for place in places if place.namespace is None]
    found: dict[Key, list[Below]] = {}
    if not upper:
        return found
    one_query = upper[0] if len(upper) == 1 else FLEET
    for below in namespaces_below(one_query):
        own, theirs = (below.organisation_id, below.namespace_id), (below.organisation_id, None)
        nearest = theirs if theirs in keys else FLEET.key
        if own not in keys and nearest in keys:
            found.setdefault(nearest, []).append(below)
    return found


def namespaces_below(place: Place, *, group_ids: "set[int] | None" = None) -> Iterator[Below]:
    """Yield the existing namespaces in one query."""
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
        Cast("organisation__policy_level__policy", TextField()),
        Cast("policy_level__policy", TextField()),
    )
    parsed = cache(json.loads)  # thousands of rows have few different texts: parse each once, into one shared object
    for org, org_slug, pk, slug, group_id, org_policy, policy in rows.iterator(chunk_size=5000):
        said = parsed(org_policy), parsed(policy)
        yield Below(org, org_slug, pk, slug, group_id, *said, stored=(org_policy, policy))
