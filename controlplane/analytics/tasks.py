"""Celery tasks of the numbers."""

from celery import shared_task
from django.utils import timezone

from controlplane.analytics import retention, rolling, tasks_reconcile

__all__ = ["retain", "roll", "tasks_reconcile"]


@shared_task(name="analytics.roll")
def roll() -> None:
    rolling.roll(timezone.now())


@shared_task(name="analytics.retain")
def retain() -> None:
    retention.retain(timezone.now())
