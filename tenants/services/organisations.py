"""Organisations: created with their default namespace, suspended and reactivated, deleted in two steps."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.actor import SYSTEM, Actor
from tenants.audit import audited
from tenants.bounds import Bounds
from tenants.errors import FieldProblem, InvalidFields, Taken
from tenants.fields import all_checked, name_check, slug_check
from tenants.levels import FLEET, fleet_hold
from tenants.limits import Limits
from tenants.locks import organisation_lock
from tenants.models import Namespace, Operation, Organisation, Pin, PolicyLevel
from tenants.models.organisations import DEFAULT
from tenants.removal import removing
from tenants.revisions import Expected, revision_check
from tenants.services.namespace_keys import keys_erase
from tenants.services.namespaces import BATCH, NewNamespace, namespaces_add
from tenants.services.operations import purge_begin

log = logging.getLogger("luminet.tenants")

Row = TypeVar("Row", Organisation, Namespace)


def organisation_create(*, actor: Actor, slug: str, name: str) -> Organisation:
    return organisations_create(actor=actor, wanted=[(slug, name)])[0]


def organisations_create(*, actor: Actor, wanted: Sequence[tuple[str, str]], owner: str = "") -> list[Organisation]:
    """Create organisations by slug and name, with a constant number of queries, each with its default namespace."""
    created = [_new(slug, name, owner) for slug, name in wanted]
    with audited() as journal:
        fleet_hold()
        try:
            with transaction.atomic():
                Organisation.objects.bulk_create(created, batch_size=BATCH)
        except IntegrityError:
            raise Taken("slug", _first_taken([organisation.slug for organisation in created]), "organisation") from None
        PolicyLevel.objects.bulk_create(
            (PolicyLevel(kind=PolicyLevel.Kind.ORGANISATION, organisation=organisation) for organisation in created),
            batch_size=BATCH,
        )
        for organisation in created:
            journal.record(
                actor,
                "organisation.create",
                organisation.slug,
                organisation=organisation,
                after=described(organisation),
            )
        namespaces_add(actor=actor, wanted=[NewNamespace(organisation, DEFAULT) for organisation in created])
    return created


def _new(slug: str, name: str, owner: str) -> Organisation:
    slug, name = all_checked(lambda: _organisation_slug_check(slug), lambda: name_check(name))
    return Organisation(slug=slug, name=name, owner=owner)


def _organisation_slug_check(slug: str) -> str:
    """Check a slug. The fleet's name is refused, because it means the fleet in plans and in the audit trail."""
    if slug == FLEET.name:
        raise InvalidFields([FieldProblem("slug", f"{slug!r} is what the fleet itself is called; choose another")])
    return slug_check(slug)


def organisation_update(
    *,
    actor: Actor,
    organisation: Organisation,
    expected: Expected,
    name: str | None = None,
    state: str | None = None,
    owner: str | None = None,
) -> Organisation:
    if state not in (None, Organisation.State.ACTIVE, Organisation.State.SUSPENDED):
        raise InvalidFields([FieldProblem("state", f"{state!r} is neither active nor suspended")])
    with audited() as journal:
        locked = _locked(actor, organisation, expected)
        before = described(locked)
        locked.name = locked.name if name is None else name_check(name)
        locked.state = locked.state if state is None else state
        locked.owner = locked.owner if owner is None else owner
        if described(locked) == before:
            return locked
        locked.revision += 1
        locked.save(update_fields=["name", "state", "owner", "revision"])
        journal.record(
            actor, "organisation.update", locked.slug, organisation=locked, before=before, after=described(locked)
        )
    return locked


def organisation_delete(*, actor: Actor, organisation: Organisation, expected: Expected) -> Operation:
    """Delete an organisation.

    Its keys stop working and its caches become unaddressable with this commit; rows are deleted after the receipts.
    """
    now = timezone.now()
    with audited() as journal:
        locked = _locked(actor, organisation, expected)
        before = described(locked)
        locked.state, locked.deleted_at = Organisation.State.DELETED, now
        locked.revision += 1
        locked.save(update_fields=["state", "deleted_at", "revision"])
        locked.api_keys.filter(revoked_at=None).update(revoked_at=now)
        Pin.objects.filter(namespace__organisation=locked).delete()
        keys_erase(locked.namespaces.all(), now=now)
        group_ids = set(locked.namespaces.filter(deleted_at=None).values_list("group_id", flat=True))
        operation = purge_begin(actor=actor, organisation=locked, namespace=None, now=now, group_ids=group_ids)
        journal.record(actor, "organisation.delete", locked.slug, organisation=locked, before=before)
    return operation


def bounds_put(*, actor: Actor, organisation: Organisation, bounds: Bounds, expected: Expected) -> Organisation:
    with audited() as journal:
        locked = organisation_lock(organisation, actor=actor)
        revision_check(locked.bounds_revision, expected)
        before, locked.bounds = locked.bounds, bounds.model_dump(exclude_none=True)
        locked.bounds_revision += 1
        locked.save(update_fields=["bounds", "bounds_revision"])
        journal.record(
            actor, "bounds.set", locked.slug, organisation=locked, before=before or None, after=locked.bounds
        )
    return locked


def limits_put(*, actor: Actor, organisation: Organisation, limits: Limits, expected: Expected) -> Organisation:
    with audited() as journal:
        locked = organisation_lock(organisation, actor=actor)
        revision_check(locked.limits_revision, expected)
        before, locked.limits = locked.limits, limits.model_dump(exclude_unset=True)
        locked.limits_revision += 1
        locked.save(update_fields=["limits", "limits_revision"])
        journal.record(
            actor, "limits.set", locked.slug, organisation=locked, before=before or None, after=locked.limits
        )
    return locked


def remains_remove() -> int:
    """Remove deleted organisations and namespaces whose purge every agent has proved, and return how many."""
    organisations = sum(_tried(_organisation_remove, organisation) for organisation in _purged_organisations())
    return organisations + sum(_tried(_namespace_remove, namespace) for namespace in _purged_namespaces())


def _tried(remove: Callable[[Row], int], row: Row) -> int:
    """Remove a row. A failure is logged and retried by the next sweep, and does not block other rows."""
    try:
        return remove(row)
    except Exception:
        log.exception("could not remove what was deleted", extra={"kind": type(row).__name__, "id": row.pk})
        return 0


def _purged_organisations() -> Sequence[Organisation]:
    running = Operation.objects.filter(kind="purge", state=Operation.State.RUNNING, organisation__isnull=False)
    deleted = Organisation.objects.filter(state=Organisation.State.DELETED)
    return list(deleted.exclude(pk__in=running.values("organisation")))


def _purged_namespaces() -> Sequence[Namespace]:
    running = Operation.objects.filter(kind="purge", state=Operation.State.RUNNING, namespace__isnull=False)
    deleted = Namespace.objects.filter(deleted_at__isnull=False).select_related("organisation")
    return list(deleted.exclude(pk__in=running.values("namespace")))


def _organisation_remove(organisation: Organisation) -> int:
    with audited() as journal, removing():
        if not Organisation.objects.select_for_update().filter(pk=organisation.pk):  # another worker was faster
            return 0
        journal.record(SYSTEM, "organisation.remove", organisation.slug, organisation=organisation)
        organisation.delete()
    return 1


def _namespace_remove(namespace: Namespace) -> int:
    name = f"{namespace.organisation.slug}/{namespace.slug}"
    with audited() as journal, removing():
        if not Namespace.objects.select_for_update().filter(pk=namespace.pk):
            return 0
        journal.record(SYSTEM, "namespace.remove", name, organisation=namespace.organisation)
        namespace.delete()
    return 1


def described(organisation: Organisation) -> dict[str, object]:
    document: dict[str, object] = {"slug": organisation.slug, "name": organisation.name, "state": organisation.state}
    return {**document, "owner": organisation.owner} if organisation.owner else document


def _locked(actor: Actor, organisation: Organisation, expected: Expected) -> Organisation:
    locked = organisation_lock(organisation, actor=actor)
    revision_check(locked.revision, expected)
    return locked


def _first_taken(slugs: Sequence[str]) -> str:
    existing = Organisation.objects.exclude(state=Organisation.State.DELETED).filter(slug__in=slugs)
    return existing.values_list("slug", flat=True).first() or slugs[0]
