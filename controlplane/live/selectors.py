"""Queries of the live app."""

from datetime import UTC, datetime, timedelta

from django.db import connection

from controlplane.live.models import Pulse


def clock_now() -> datetime:
    """Return the time of the database's clock, which all processes on all machines share."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def pulse_latest() -> Pulse | None:
    return Pulse.objects.order_by("-pk").first()


def pulse_history(*, now: datetime, minutes: int = 10) -> list[Pulse]:
    """Return the pulses of the last minutes, oldest first."""
    return list(Pulse.objects.filter(recorded_at__gt=now - timedelta(minutes=minutes)).order_by("pk"))


def pulses_since(seq: int, *, limit: int = 300) -> list[Pulse]:
    """Return the pulses recorded in that millisecond or later, oldest first."""
    since = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=seq)
    return list(Pulse.objects.filter(recorded_at__gte=since).order_by("recorded_at", "pk")[:limit])
