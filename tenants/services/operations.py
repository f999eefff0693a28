"""Purges, and the operations that wait for agents' receipts."""

from collections.abc import Collection
from datetime import datetime

from django.db.models import F
from django.utils import timezone

from tenants import hooks
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
    """Purge a namespace or a whole organisation by raising epochs.

    From this commit on, agents must drop older blocks.
    """
    now = timezone.now()
    with audited() as journal:
        organisation_lock(organisation, actor=actor)
        existing = Namespace.objects.select_for_update(no_key=True).filter(organisation=organisation, deleted_at=None)
        namespaces = list(existing.order_by("pk") if namespace is None else existing.filter(pk=namespace.pk))
        if namespace is not None and not namespaces:
            raise NotFound("namespace")
        keys_erase(namespaces, now=now)
        Namespace.objects.filter(pk__in=[namespace.pk for namespace in namespaces]).update(epoch=F("epoch") + 1)
        NamespaceKey.objects.bulk_create(
            (key_new(namespace, namespace.epoch + 1) for namespace in namespaces), batch_size=BATCH
        )
        if include_pins:
            Pin.objects.filter(namespace__in=namespaces).delete()
        groups = {namespace.group_id for namespace in namespaces}
        operation = purge_begin(actor=actor, organisation=organisation, namespace=namespace, now=now, group_ids=groups)
        journal.record(
            actor,
            "cache.purge",
            operation.scope,
            organisation=organisation,
            after={"namespaces": [namespace.slug for namespace in namespaces], "include_pins": include_pins},
        )
    return operation


def purge_begin(
    *,
    actor: Actor,
    organisation: Organisation,
    namespace: Namespace | None,
    now: datetime,
    group_ids: Collection[int] = (),
) -> Operation:
    scope = organisation.slug if namespace is None else f"{organisation.slug}/{namespace.slug}"
    return operation_begin(
        actor=actor,
        kind="purge",
        scope=scope,
        organisation=organisation,
        namespace=namespace,
        now=now,
        group_ids=group_ids,
    )


def operation_begin(
    *,
    actor: Actor,
    kind: str,
    scope: str,
    now: datetime,
    organisation: Organisation | None = None,
    namespace: Namespace | None = None,
    group_ids: Collection[int] = (),
) -> Operation:
    """Start an operation that runs until each agent concerned has proved it. Without such agents it is done at once."""
    operation = Operation.objects.create(
        kind=kind,
        scope=scope,
        organisation=organisation,
        namespace=namespace,
        state=Operation.State.DONE,
        created_by=actor.public_name,
        created_at=now,
        finished_at=now,
    )
    agents = {agent for begin in hooks.operation_begins for agent in begin(operation, group_ids)}
    if agents:
        operation.state, operation.finished_at = Operation.State.RUNNING, None
        operation.awaited_agents = sorted(agents)
        operation.save(update_fields=["state", "finished_at", "awaited_agents"])
    return operation
