"""Webhook notifications, queued in the transaction of the change they report, so none is lost or invented."""

import json
import uuid
from collections.abc import Iterable
from datetime import datetime

from django.core.serializers.json import DjangoJSONEncoder

from controlplane.alerts.models import Alert, AlertRule, Delivery
from controlplane.alerts.views import alert_view

FIRED, RESOLVED = "fired", "resolved"


def is_silenced(alert: Alert, now: datetime) -> bool:
    return alert.silenced_until is not None and alert.silenced_until > now


def is_to_be_told(alert: Alert, rule: AlertRule, now: datetime) -> bool:
    """Return whether to notify the webhook now: once for each alert, but not before its silence ends."""
    return bool(rule.webhook_url) and not alert.is_told and not is_silenced(alert, now)


def deliveries_queue(alerts: Iterable[Alert], event: str, *, now: datetime) -> None:
    """Queue a delivery for each alert. The rules of these alerts must have a webhook."""
    Delivery.objects.bulk_create([_delivery(alert, event, now) for alert in alerts])


def _delivery(alert: Alert, event: str, now: datetime) -> Delivery:
    key = uuid.uuid4()
    body = {"version": 1, "delivery": key, "event": event, "at": now, "alert": alert_view(alert)}
    return Delivery(
        pk=key,
        rule=alert.rule,
        alert=alert,
        event=event,
        body=json.dumps(body, cls=DjangoJSONEncoder, ensure_ascii=False, separators=(",", ":")),
        next_at=now,
        created_at=now,
    )
