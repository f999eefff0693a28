"""Celery tasks of the live app."""

from datetime import UTC, datetime
from typing import Any

from celery import shared_task

from controlplane.live.selectors import clock_now
from controlplane.live.services import pulse_record


@shared_task(name="live.pulse", bind=True)
def pulse(self: Any) -> None:
    """Record that beat's message came through the broker to this worker."""
    sent_at = datetime.fromtimestamp(float(self.request.luminet_sent_at), UTC)
    pulse_record(sent_at=sent_at, now=clock_now())
