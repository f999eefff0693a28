"""What is over and need be remembered no longer, in small steps: none of them waits long, and none holds up another."""

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

# Failed attempts that cost a hash of a password each: a machine hashes no more of them within their window.
ATTEMPTS_KEPT = 100_000
OPERATIONS_KEPT = timedelta(days=90)
ERASED_KEYS_KEPT = timedelta(days=90)  # nothing but when an epoch ended: the secret itself went with the purge
BATCH = 2_000
# All parts together stay below the time after which the broker hands an unfinished task to a second worker.
PART_SECONDS = 5.0


def housekeeping(*, now: datetime) -> int:
    """How many things went. What is left over, or fails, is tried again by the next sweep."""
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
    """A batch at a time, each in a transaction of its own: as far as the time goes."""
    removed, until = 0, time.monotonic() + seconds
    while ids := list(rows.order_by().values_list("pk", flat=True)[:BATCH]):  # in an order, another index would be used
        removed += rows.filter(pk__in=ids).delete()[0]
        if len(ids) < BATCH or time.monotonic() >= until:
            break
    return removed


def _tried(what: str, part: Callable[[], int]) -> int:
    try:
        return part()
    except Exception:
        log.exception("housekeeping left something undone", extra={"what": what})
        return 0
