"""Celery tasks of the rollouts app."""

import logging

from celery import shared_task
from django.utils import timezone

from controlplane.rollouts import planner, sweeping
from controlplane.rollouts.assigning import PlanningBusy

log = logging.getLogger("luminet.rollouts")


@shared_task(name="rollouts.push")
def push() -> None:
    """Plan and send after a commit."""
    try:
        planner.plan_carry_out(now=timezone.now())
    except PlanningBusy:
        log.info("the push has to wait for the sweep", extra={"reason": "somebody else plans"})


@shared_task(name="rollouts.sweep")
def sweep() -> None:
    sweeping.sweep(now=timezone.now())
