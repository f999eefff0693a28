"""Celery tasks of the tenants domain."""

from celery import shared_task
from django.utils import timezone

from tenants.services import organisations, people


@shared_task(name="tenants.housekeeping")
def housekeeping() -> None:
    people.housekeeping(now=timezone.now())
    organisations.remains_remove()
