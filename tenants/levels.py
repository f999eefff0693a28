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


def level_of(policy_scope: Place) -> PolicyLevel:
    if policy_scope.organisation is None:
        return PolicyLevel.objects.get_or_create(kind=PolicyLevel.Kind.FLEET)[0]
    owner = (
        {"organisation": policy_scope.organisation}
        if policy_scope.namespace is None
        else {"namespace": policy_scope.namespace}
    )
    level = PolicyLevel.objects.filter(**owner).first()
    if level is None:  # removed since the caller looked it up
        raise NotFound("policy")
    return level


def place_of(level: PolicyLevel) -> Place:
    """Return the owner of a level. No query is needed if its relations are loaded."""
    if level.namespace is not None:
        return Place(level.namespace.organisation, level.namespace)
    return Place(level.organisation)


def levels_of(policy_scope: Place) -> list[PolicyLevel]:
    """Return the levels that a place inherits, outermost first, and its own. One query reads them at one moment."""
    organisation_id, namespace_id = policy_scope.key
    owners = Q(kind=PolicyLevel.Kind.FLEET)
    keys: list[Key] = [FLEET.key]
    if organisation_id is not None:
        owners |= Q(organisation=organisation_id)
        keys.append((organisation_id, None))
    if namespace_id is not None:
        owners |= Q(namespace=namespace_id)
        keys.append((None, namespace_id))
    levels_by_key = {(level.organisation_id, level.namespace_id): level for level in PolicyLevel.objects.filter(owners)}
    if FLEET.key not in levels_by_key:
        levels_by_key[FLEET.key] = level_of(FLEET)
    if not all(key in levels_by_key for key in keys):  # removed since the caller looked it up
        raise NotFound("policy")
    return [levels_by_key[key] for key in keys]


@dataclass(frozen=True, slots=True)
class Locked:
    """A level locked for writing, those above it locked against change, and its current organisation."""

    level: PolicyLevel
    above: tuple[PolicyLevel, ...]
    organisation: Organisation | None


def levels_lock(policy_scopes: Sequence[Place], *, actor: Actor) -> list[Locked]:
    """Lock levels in the order of `locks.py`; each level is one object throughout.

    The fleet's level gets only a shared lock unless it is among them, so that organisations can publish at the same
    time.
    """
    fleet = fleet_lock() if FLEET in policy_scopes else fleet_hold()
    organisation_ids = {
        policy_scope.organisation.pk for policy_scope in policy_scopes if policy_scope.organisation is not None
    }
    organisations = {
        organisation.pk: organisation for organisation in organisations_lock(organisation_ids, actor=actor)
    }
    namespaces_lock({policy_scope.namespace.pk for policy_scope in policy_scopes if policy_scope.namespace is not None})
    owners = Q(organisation__in={policy_scope.key[0] for policy_scope in policy_scopes}) | Q(
        namespace__in={policy_scope.key[1] for policy_scope in policy_scopes}
    )
    levels = PolicyLevel.objects.select_for_update().filter(owners).order_by("pk")
    levels_by_key = {(level.organisation_id, level.namespace_id): level for level in levels}
    return [_locked(policy_scope, fleet, levels_by_key, organisations) for policy_scope in policy_scopes]


def _locked(
    policy_scope: Place,
    fleet: PolicyLevel,
    levels_by_key: dict[Key, PolicyLevel],
    organisations: dict[int, Organisation],
) -> Locked:
    organisation_id, namespace_id = policy_scope.key
    if organisation_id is None:
        return Locked(fleet, (), None)
    own, organisation = levels_by_key[organisation_id, None], organisations[organisation_id]
    if namespace_id is None:
        return Locked(own, (fleet,), organisation)
    return Locked(levels_by_key[None, namespace_id], (fleet, own), organisation)


def fleet_lock() -> PolicyLevel:
    """Lock the fleet's level exclusively until commit, before all other locks.

    No other writer can publish or create.
    """
    return PolicyLevel.objects.select_for_update(no_key=True).get(pk=level_of(FLEET).pk)


def levels_hold(
    organisations: Iterable[Organisation], *, actor: Actor
) -> dict[int, tuple[Organisation, list[PolicyLevel]]]:
    """Lock the organisations until commit, and return each with the levels that its namespaces inherit."""
    fleet, ids = fleet_hold(), {organisation.pk for organisation in organisations}
    locked = organisations_lock(ids, actor=actor)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM tenants_policylevel WHERE organisation_id = ANY(%s) ORDER BY id FOR SHARE", [sorted(ids)]
        )
    levels = {level.organisation_id: level for level in PolicyLevel.objects.filter(organisation__in=ids)}
    return {organisation.pk: (organisation, [fleet, levels[organisation.pk]]) for organisation in locked}


def fleet_hold() -> PolicyLevel:
    """Lock the fleet's level against change, before all other locks. Many transactions may share this lock."""
    return _held(level_of(FLEET))


def _held(level: PolicyLevel) -> PolicyLevel:
    with connection.cursor() as cursor:  # Django supports only exclusive locks
        cursor.execute("SELECT 1 FROM tenants_policylevel WHERE id = %s FOR SHARE", [level.pk])
    level.refresh_from_db()
    return level


def namespaces_by_place(policy_scopes: Sequence[Place]) -> dict[Key, list[Below]]:
    """Return the existing namespaces, each under its nearest place above, without those that are a place themselves."""
    keys = {policy_scope.key for policy_scope in policy_scopes}
    upper_scopes = [policy_scope for policy_scope in policy_scopes if policy_scope.namespace is None]
    namespaces_by_key: dict[Key, list[Below]] = {}
    if not upper_scopes:
        return namespaces_by_key
    outermost = upper_scopes[0] if len(upper_scopes) == 1 else FLEET
    for below in namespaces_below(outermost):
        namespace_key, organisation_key = (below.organisation_id, below.namespace_id), (below.organisation_id, None)
        nearest = organisation_key if organisation_key in keys else FLEET.key
        if namespace_key not in keys and nearest in keys:
            namespaces_by_key.setdefault(nearest, []).append(below)
    return namespaces_by_key


def namespaces_below(policy_scope: Place, *, group_ids: "set[int] | None" = None) -> Iterator[Below]:
    """Yield the existing namespaces in one query."""
    existing = Namespace.objects.filter(deleted_at=None).exclude(organisation__state=Organisation.State.DELETED)
    if policy_scope.organisation is not None:
        existing = existing.filter(organisation=policy_scope.organisation)
    if policy_scope.namespace is not None:
        existing = existing.filter(pk=policy_scope.namespace.pk)
    if group_ids is not None:
        existing = existing.filter(group_id__in=group_ids)
    rows: Any = existing.order_by("pk").values_list(
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
        policies = parsed(org_policy), parsed(policy)
        yield Below(org, org_slug, pk, slug, group_id, *policies, stored=(org_policy, policy))
