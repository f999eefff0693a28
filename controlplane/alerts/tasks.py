"""Celery tasks of the alerts. Each may run late or twice, because the database says what is left to do."""

from celery import shared_task
from django.utils import timezone

from controlplane.alerts import services
from controlplane.alerts.anchoring import anchor_take
from controlplane.alerts.delivery import deliveries_send
from controlplane.alerts.evaluating import alerts_evaluate


@shared_task(name="alerts.evaluate")
def evaluate() -> None:
    alerts_evaluate(now=timezone.now())


@shared_task(name="alerts.anchor")
def anchor() -> None:
    anchor_take(timezone.now())


@shared_task(name="alerts.deliver")
def deliver() -> None:
    deliveries_send(now=timezone.now())


@shared_task(name="alerts.housekeeping")
def alerts_housekeeping() -> None:
    services.housekeeping(now=timezone.now())
