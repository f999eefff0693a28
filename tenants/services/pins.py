"""Pins: prefixes that must stay cached. Their content is sealed here and opened only for agents."""

import json
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from tenants.actor import Actor
from tenants.audit import audited
from tenants.crypto import seal, unseal
from tenants.errors import FieldProblem, InvalidFields, LimitReached, Taken
from tenants.fields import all_checked, ending_check, name_check
from tenants.limits import limits_of
from tenants.locks import namespace_lock, organisation_lock
from tenants.models import Namespace, Organisation, Pin

MAX_CONTENT_BYTES = 512 * 1024


def pin_create(
    *,
    actor: Actor,
    namespace: Namespace,
    name: str,
    model: str,
    content_kind: str,
    content: Any,
    expires_at: datetime | None = None,
) -> Pin:
    encoded = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    checks = (lambda: name_check(name), lambda: _size_check(content_kind, encoded), lambda: ending_check(expires_at))
    name, *_ = all_checked(*checks)
    pin = Pin(
        namespace=namespace,
        name=name,
        model=model,
        content_kind=content_kind,
        content_bytes=len(encoded),
        expires_at=expires_at,
        created_by=actor.public_name,
    )
    pin.sealed_content = seal(encoded, place=pin_place(pin))
    with audited() as journal:
        _room_check(organisation_lock(namespace.organisation, actor=actor))
        namespace_lock(namespace)
        try:
            with transaction.atomic():
                pin.save()
        except IntegrityError:
            raise Taken("name", pin.name, "pin of this namespace") from None
        after = {"id": str(pin.pk), "name": pin.name, "model": model, "bytes": len(encoded)}
        journal.record(actor, "pin.create", _target(pin), organisation=namespace.organisation, after=after)
    return pin


def pin_delete(*, actor: Actor, pin: Pin) -> None:
    with audited() as journal:
        organisation_lock(pin.namespace.organisation, actor=actor)
        before = {"id": str(pin.pk), "name": pin.name, "model": pin.model}
        deleted_count, _ = Pin.objects.filter(pk=pin.pk).delete()
        if deleted_count:
            journal.record(actor, "pin.delete", _target(pin), organisation=pin.namespace.organisation, before=before)


def pin_content(pin: Pin) -> Any:
    """Return a pin's content, only for the agents that must cache it, which fetch it once by the pin's id."""
    return json.loads(unseal(pin.sealed_content, place=pin_place(pin)))


def _size_check(field: str, encoded: bytes) -> None:
    if len(encoded) > MAX_CONTENT_BYTES:
        raise InvalidFields([FieldProblem(field, f"has {len(encoded)} bytes, {MAX_CONTENT_BYTES} is the most")])


def _room_check(organisation: Organisation) -> None:
    limit = limits_of(organisation.limits).max_pins
    if Pin.objects.filter(namespace__organisation=organisation).count() >= limit:
        raise LimitReached("max_pins", limit)


def pin_place(pin: Pin) -> str:
    return f"pin {pin.pk} of namespace {pin.namespace_id}"


def _target(pin: Pin) -> str:
    return f"{pin.namespace.organisation.slug}/{pin.namespace.slug} pin {pin.name}"
