"""Celery tasks of the tenants domain."""

from celery import shared_task
from django.utils import timezone

from tenants.services import housekeeping as services


@shared_task(name="tenants.housekeeping")
def housekeeping() -> None:
    services.housekeeping(now=timezone.now())
