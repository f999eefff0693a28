"""Send queued deliveries until their receivers accept them, or a day has passed.

A worker claims a delivery by postponing it, in a commit before it sends anything. If the worker is killed in between,
the delivery becomes due again, with the same id. Each rule has one delivery in flight, the oldest, so receivers learn
of an alert's beginning before its end. Each organisation has at most two, so a slow receiver delays others by no more
than one send. Only one round runs at a time: receivers can block one thread of a worker, but never all of them.
"""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.alerts.models import AlertEvent, Delivery
from controlplane.alerts.services import webhook_secret
from controlplane.alerts.webhooks import NotAllowed, NotTaken, Policy, send
from controlplane.database.locks import alone

log = logging.getLogger("luminet.alerts")
FIRST_WAIT: Final = timedelta(seconds=10)
LONGEST_WAIT: Final = timedelta(minutes=15)  # so that a receiver that was down gets the rest soon after
TRIED_FOR: Final = timedelta(days=1)
LEASE: Final = timedelta(seconds=60)  # longer than a send can take
AT_ONCE: Final = 8
OF_ONE_ORGANISATION: Final = 2
OF_OPERATORS: Final = 6  # they come first, and leave some room for others
LOCK: Final = 7_446_220_464  # a number that no other lock uses
ROUND_SECONDS: Final = 30.0  # plus the last sends, well below the time after which the broker takes a task for lost


@dataclass(frozen=True, slots=True)
class Claimed:
    """Everything that sending needs, so that sending needs no database."""

    delivery: str
    rule: str
    url: str
    body: bytes
    secret: str
    policy: Policy


def deliveries_send(*, now: datetime) -> int:
    """Send what is due and return how many were tried; 0 if another round is running."""
    with alone(LOCK) as is_alone:
        return _round(now) if is_alone else 0


def _round(now: datetime) -> int:
    tried, until = 0, time.monotonic() + ROUND_SECONDS
    while time.monotonic() < until and (claims := deliveries_claim(now=now)):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(_tried, claims))
        for claim, problem in zip(claims, outcomes, strict=True):
            delivery_settle(claim.delivery, problem, now=timezone.now())
        tried, now = tried + len(claims), max(now, timezone.now())
    return tried


OLDEST_DUE = """
SELECT id FROM (
    SELECT waiting.id, waiting.next_at, rule.webhook_by_operator AS is_operators, row_number() OVER (
        PARTITION BY rule.webhook_by_operator, CASE WHEN rule.webhook_by_operator THEN 0 ELSE rule.organisation_id END
        ORDER BY waiting.next_at, waiting.id
    ) AS place
    FROM alerts_alertrule rule
    CROSS JOIN LATERAL (
        SELECT id, next_at FROM alerts_delivery WHERE rule_id = rule.number AND state = 'waiting'
        ORDER BY created_at, id LIMIT 1
    ) waiting WHERE rule.webhook_url <> '' AND (waiting.next_at <= %s OR waiting.next_at > %s)
) due WHERE place <= CASE WHEN is_operators THEN %s ELSE %s END
ORDER BY is_operators DESC, next_at LIMIT %s
"""


@transaction.atomic
def deliveries_claim(*, now: datetime) -> list[Claimed]:
    latest_due = now + max(LONGEST_WAIT, LEASE)  # nothing is due this late, unless the clock was set back since
    ids = [
        delivery.pk
        for delivery in Delivery.objects.raw(OLDEST_DUE, [now, latest_due, OF_OPERATORS, OF_ONE_ORGANISATION, AT_ONCE])
    ]
    is_due = Q(next_at__lte=now) | Q(next_at__gt=latest_due)
    waiting = Delivery.objects.filter(is_due, pk__in=ids, state=Delivery.State.WAITING)
    deliveries = list(waiting.select_related("rule", "alert").select_for_update(of=("self",), skip_locked=True))
    for delivery in deliveries:
        delivery.attempts += 1
        delivery.next_at = now + LEASE
    Delivery.objects.bulk_update(deliveries, ["attempts", "next_at"])
    return [_claimed(delivery) for delivery in deliveries]


def _claimed(delivery: Delivery) -> Claimed:
    rule = delivery.rule
    return Claimed(
        delivery=str(delivery.pk),
        rule=str(rule.public_id),
        url=rule.webhook_url,
        body=delivery.body.encode(),
        secret=webhook_secret(rule),
        policy=Policy(rule.webhook_by_operator, settings.ENVIRONMENT.webhook_hosts),
    )


def _tried(claim: Claimed) -> str | None:
    """Send the delivery. Return the problem, or None if the receiver accepted it."""
    try:
        timestamp = int(time.time())
        send(
            claim.url,
            claim.body,
            secret=claim.secret,
            delivery=claim.delivery,
            timestamp=timestamp,
            policy=claim.policy,
        )
    except (NotTaken, NotAllowed) as error:
        log.warning("a webhook was not taken", extra={"rule": claim.rule, "reason": str(error)})
        return str(error)
    return None


@transaction.atomic
def delivery_settle(delivery_id: str, problem: str | None, *, now: datetime) -> None:
    """Store the outcome of a delivery, unless another worker has already settled it."""
    waiting = Delivery.objects.select_for_update().select_related("alert").filter(pk=delivery_id, state="waiting")
    delivery = waiting.first()
    if delivery is None:
        return
    if problem is None:
        _ended(delivery, Delivery.State.TAKEN, "", now)
    elif now - delivery.created_at >= TRIED_FOR:
        _ended(delivery, Delivery.State.GIVEN_UP, problem, now)
    else:
        delivery.problem, delivery.next_at = problem, now + wait_after(delivery.attempts)
        delivery.save(update_fields=["problem", "next_at"])


def _ended(delivery: Delivery, state: Delivery.State, problem: str, now: datetime) -> None:
    delivery.state, delivery.problem, delivery.ended_at = state, problem, now
    delivery.save(update_fields=["state", "problem", "ended_at"])
    is_delivered = state == Delivery.State.TAKEN
    kind = AlertEvent.Kind.DELIVERED if is_delivered else AlertEvent.Kind.NOT_DELIVERED
    words = f"The webhook took that it {delivery.event}." if is_delivered else f"The webhook {problem}, for a day."
    AlertEvent.objects.create(alert=delivery.alert, kind=kind, at=now, words=words)


def wait_after(attempts: int) -> timedelta:
    """Return the wait after this many attempts: 10 s, doubled each time, at most 15 minutes."""
    return min(FIRST_WAIT * 2.0 ** min(attempts - 1, 20), LONGEST_WAIT)
