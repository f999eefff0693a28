"""The Celery task that compares counts. `tasks.py` imports it, so that workers know it."""

from celery import shared_task
from django.utils import timezone

from controlplane.analytics.reconciliations import reconciliation_run


@shared_task(name="analytics.reconcile")
def reconcile() -> None:
    reconciliation_run(now=timezone.now())
