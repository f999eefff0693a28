"""Celery tasks of the fleet."""

from celery import shared_task
from django.utils import timezone

from controlplane.fleet import housekeeping as services


@shared_task(name="fleet.housekeeping")
def fleet_housekeeping() -> None:
    services.housekeeping(now=timezone.now())
