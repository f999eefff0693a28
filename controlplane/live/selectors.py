"""Reads of the live app."""

from datetime import datetime, timedelta

from controlplane.live.models import Pulse


def pulse_latest() -> Pulse | None:
    return Pulse.objects.order_by("-pk").first()


def pulse_history(*, now: datetime, minutes: int = 10) -> list[Pulse]:
    """The pulses of the last minutes, oldest first."""
    return list(Pulse.objects.filter(recorded_at__gt=now - timedelta(minutes=minutes)).order_by("pk"))


def pulses_since(seq: int, *, limit: int = 300) -> list[Pulse]:
    """What a page that saw `seq` last has missed, oldest first."""
    return list(Pulse.objects.filter(pk__gt=seq).order_by("pk")[:limit])
