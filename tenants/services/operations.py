"""Purges, and the operations that wait for agents' receipts."""

from datetime import datetime

from django.db.models import F
from django.utils import timezone

from tenants.actor import Actor
from tenants.audit import audited
from tenants.errors import NotFound
from tenants.locks import organisation_lock
from tenants.models import Namespace, NamespaceKey, Operation, Organisation, Pin
from tenants.services.namespace_keys import key_new, keys_erase

BATCH = 5_000


def purge(
    *, actor: Actor, organisation: Organisation, namespace: Namespace | None = None, include_pins: bool = False
) -> Operation:
    """Rotate the epoch of a namespace, or of all of an organisation's: from this commit on nothing older is desired."""
    now = timezone.now()
    with audited() as journal:
        organisation_lock(organisation, actor=actor)
        living = Namespace.objects.select_for_update(no_key=True).filter(organisation=organisation, deleted_at=None)
        chosen = list(living.order_by("pk") if namespace is None else living.filter(pk=namespace.pk))
        if namespace is not None and not chosen:
            raise NotFound("namespace")
        keys_erase(chosen, now=now)
        Namespace.objects.filter(pk__in=[one.pk for one in chosen]).update(epoch=F("epoch") + 1)
        NamespaceKey.objects.bulk_create((key_new(one, one.epoch + 1) for one in chosen), batch_size=BATCH)
        if include_pins:
            Pin.objects.filter(namespace__in=chosen).delete()
        operation = purge_begin(actor=actor, organisation=organisation, namespace=namespace, now=now)
        journal.record(
            actor,
            "cache.purge",
            operation.scope,
            organisation=organisation,
            after={"namespaces": [one.slug for one in chosen], "include_pins": include_pins},
        )
    return operation


def purge_begin(*, actor: Actor, organisation: Organisation, namespace: Namespace | None, now: datetime) -> Operation:
    scope = organisation.slug if namespace is None else f"{organisation.slug}/{namespace.slug}"
    return operation_begin(
        actor=actor, kind="purge", scope=scope, organisation=organisation, namespace=namespace, now=now
    )


def operation_begin(
    *,
    actor: Actor,
    kind: str,
    scope: str,
    now: datetime,
    organisation: Organisation | None = None,
    namespace: Namespace | None = None,
    agents: tuple[str, ...] = (),
) -> Operation:
    """Running until each of these agents has sent its receipt. Where there is none to wait for, it is done."""
    state = Operation.State.RUNNING if agents else Operation.State.DONE
    return Operation.objects.create(
        kind=kind,
        scope=scope,
        organisation=organisation,
        namespace=namespace,
        state=state,
        awaited_agents=list(agents),
        created_by=actor.public_name,
        created_at=now,
        finished_at=None if agents else now,
    )
