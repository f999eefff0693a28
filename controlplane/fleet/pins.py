"""The content of pins, for the engines that keep it cached. No other agent learns that a pin exists."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from controlplane.fleet.known_agents import AgentNow
from tenants.models import Organisation, Pin
from tenants.services.pins import pin_content


def pin_told(agent: AgentNow, pin_id: str, *, now: datetime) -> dict[str, Any] | None:
    """Return the pin's kind and content, or None if the engine's group has no pin of that id."""
    pin_uuid = _uuid(pin_id)
    if pin_uuid is None or agent.kind != "engine":
        return None
    living = Q(expires_at=None) | Q(expires_at__gt=now)
    pins = Pin.objects.filter(living, pk=pin_uuid, namespace__group=agent.group, namespace__deleted_at=None)
    pin = pins.exclude(namespace__organisation__state=Organisation.State.DELETED).first()
    return None if pin is None else {"kind": pin.content_kind, "content": pin_content(pin)}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
