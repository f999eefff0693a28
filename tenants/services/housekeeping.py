"""Deletion of expired rows in small steps, so that no step waits or blocks other work for long."""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib.sessions.models import Session
from django.db.models import Model, QuerySet, Subquery

from tenants.models import IdempotentRequest, NamespaceKey, OneTimeLink, Operation, SignInAttempt
from tenants.services.idempotency import ANSWERS_KEPT
from tenants.services.organisations import remains_remove
from tenants.sign_in_limits import WINDOW

log = logging.getLogger("luminet.tenants")

# Each failed attempt costs a password hash, and a machine cannot compute more of them within their window.
ATTEMPTS_KEPT = 100_000
OPERATIONS_KEPT = timedelta(days=90)
ERASED_KEYS_KEPT = timedelta(days=90)  # they only record when an epoch ended: the secret itself was erased by the purge
BATCH = 2_000
# All parts together finish before the broker would hand an unfinished task to a second worker.
PART_SECONDS = 5.0


def housekeeping(*, now: datetime) -> int:
    """Delete expired rows and return how many. The next sweep retries what remains or fails."""
    removed = sum(_tried(rows.model.__name__, partial(rows_remove, rows)) for rows in _over(now))
    return removed + _tried("what was deleted", remains_remove)


def _over(now: datetime) -> "list[QuerySet[Any]]":
    return [
        SignInAttempt.objects.filter(at__lt=now - WINDOW),
        SignInAttempt.objects.filter(pk__lte=Subquery(_newest_first(SignInAttempt)[ATTEMPTS_KEPT : ATTEMPTS_KEPT + 1])),
        Session.objects.filter(expire_date__lt=now),
        IdempotentRequest.objects.filter(created_at__lt=now - ANSWERS_KEPT),
        OneTimeLink.objects.filter(expires_at__lt=now),
        Operation.objects.filter(finished_at__lt=now - OPERATIONS_KEPT),
        NamespaceKey.objects.filter(retired_at__lt=now - ERASED_KEYS_KEPT),
    ]


def _newest_first(model: type[Model]) -> "QuerySet[Any, Any]":
    return model._default_manager.order_by("-pk").values("pk")


def rows_remove(rows: "QuerySet[Any]", *, seconds: float = PART_SECONDS) -> int:
    """Delete rows in batches, each in its own transaction, until the time is used up."""
    removed, deadline = 0, time.monotonic() + seconds
    # With an order, PostgreSQL would use another index.
    while ids := list(rows.order_by().values_list("pk", flat=True)[:BATCH]):
        removed += rows.filter(pk__in=ids).delete()[0]
        if len(ids) < BATCH or time.monotonic() >= deadline:
            break
    return removed


def _tried(name: str, part: Callable[[], int]) -> int:
    try:
        return part()
    except Exception:
        log.exception("housekeeping left something undone", extra={"what": name})
        return 0
