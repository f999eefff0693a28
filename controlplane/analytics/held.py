"""A namespace's cached bytes and its pins on each agent, as last reported. Selectors."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from controlplane.analytics.models import PinHeld, Residence
from tenants.models import Namespace


def residences_of(namespace: Namespace) -> list[tuple[str, int, datetime]]:
    """Return (agent, bytes, time of the report)."""
    rows = Residence.objects.filter(namespace_id=namespace.pk).order_by("agent")
    return list(rows.values_list("agent", "resident_bytes", "at"))


def pins_held(namespace: Namespace, pins: Collection[UUID]) -> Mapping[UUID, Sequence[PinHeld]]:
    """Return by pin what each agent last reported of it, in one query."""
    rows_by_pin = defaultdict[UUID, list[PinHeld]](list)
    for row in PinHeld.objects.filter(namespace_id=namespace.pk, pin_id__in=pins).order_by("agent"):
        rows_by_pin[row.pin_id].append(row)
    return rows_by_pin
