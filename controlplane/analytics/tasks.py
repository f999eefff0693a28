"""Celery tasks of analytics."""

from celery import shared_task
from django.utils import timezone

from controlplane.analytics import predicting, retention, rolling, tasks_reconcile

__all__ = ["predict", "retain", "roll", "tasks_reconcile"]


@shared_task(name="analytics.roll")
def roll() -> None:
    rolling.roll(timezone.now())


@shared_task(name="analytics.predict")
def predict() -> None:
    now = timezone.now()
    predicting.effects_predict(now)
    predicting.effects_measure(now)


@shared_task(name="analytics.retain")
def retain() -> None:
    retention.retain(timezone.now())
