"""Writes of the live app: recording a pulse and nudging the pages that are open."""

from datetime import datetime

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

from controlplane.live.listeners import FLEET_GROUP
from controlplane.live.models import Pulse

PULSES_KEPT = 300  # ten minutes at one every two seconds


def pulse_record(*, sent_at: datetime, now: datetime) -> Pulse:
    """Store the pulse once, however often its message is delivered, and notify every open fleet page."""
    with transaction.atomic():
        pulse, created = Pulse.objects.get_or_create(sent_at=sent_at, defaults={"recorded_at": now})
        if created:
            Pulse.objects.filter(pk__lte=pulse.pk - PULSES_KEPT).delete()
    if created:
        fleet_nudge(pulse_message(pulse))
    return pulse


def pulse_message(pulse: Pulse) -> dict[str, object]:
    return {
        "type": "pulse",
        "seq": pulse.seq,
        "at": pulse.recorded_at.timestamp(),
        "ms": round(pulse.milliseconds, 1),
    }


def fleet_nudge(message: dict[str, object]) -> None:
    """Send a message to all open fleet pages, in all processes."""
    layer = get_channel_layer()
    if layer is None:
        raise RuntimeError("no channel layer is configured")
    async_to_sync(layer.group_send)(FLEET_GROUP, {"type": "relay", "message": message})
