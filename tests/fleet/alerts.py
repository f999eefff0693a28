"""Rules and alerts for tests, and what they are measured by: rows as ingest and rolling leave them behind."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from controlplane.alerts.evaluating import alerts_evaluate
from controlplane.alerts.models import Alert, AlertEvent, AlertRule
from controlplane.alerts.services import Draft, rule_create
from controlplane.analytics.models import Minute, PoolMinute, Series
from controlplane.analytics.partitions import partitions_ensure
from tenants.actor import SYSTEM, Actor
from tenants.levels import FLEET, Place
from tenants.models import Namespace

INTERVAL = timedelta(seconds=15)  # as beat asks for it
START = datetime(2026, 11, 22, 12, 0, 5, tzinfo=UTC)


def make_alert_rule(place: Place = FLEET, *, actor: Actor = SYSTEM, **more: Any) -> AlertRule:
    """A namespace's hit ratio below a half, at once, unless told otherwise."""
    draft: dict[str, Any] = {
        "name": "Cold",
        "metric": "hit_ratio",
        "comparison": "below",
        "threshold": 0.5,
        "for_seconds": 0,
        **more,
    }
    return rule_create(actor=actor, draft=Draft(**draft), place=place).rule


def make_alert(rule: AlertRule, **more: Any) -> Alert:
    """As if it had just fired."""
    now, namespace = timezone.now(), rule.namespace
    subject = "fleet" if namespace is None else f"namespace {namespace.pk}"
    alert = Alert.objects.create(
        **{
            "rule": rule,
            "rule_name": rule.name,
            "by_operator": rule.author_is_operator,
            "metric": rule.metric,
            "subject": subject,
            "place": subject,
            "organisation": rule.organisation,
            "namespace": namespace,
            "comparison": rule.comparison,
            "threshold": rule.threshold,
            "value": 0.3,
            "words": "It is cold.",
            "next_step": "Wait.",
            "since": now,
            "fired_at": now,
            **more,
        }
    )
    AlertEvent.objects.create(alert=alert, kind=AlertEvent.Kind.FIRED, at=now)
    return alert


def make_minute(
    namespace: Namespace, at: datetime, *, agent: str = "agent-1", kind: str = "customer", **counts: int
) -> None:
    """A minute of one series, with a partition for its day."""
    partitions_ensure([at.astimezone(UTC).date()])
    series, _ = Series.objects.get_or_create(
        agent=agent, organisation_id=namespace.organisation_id, namespace_id=namespace.pk, model="m", kind=kind
    )
    Minute.objects.update_or_create(
        series_id=series.pk, minute=at.replace(second=0, microsecond=0), defaults={"times": [], **counts}
    )


def make_traffic(namespace: Namespace, at: datetime, *, cached: float, tokens: int = 12_000) -> None:
    make_minute(namespace, at, requests=1, prompt_tokens=tokens, cached_tokens=int(tokens * cached))


def make_pool(
    agent: str, at: datetime, *, used: int, evictable: int = 0, preemptions: int = 0, boot: str = "b1"
) -> None:
    """Of a hundred."""
    PoolMinute.objects.update_or_create(
        agent=agent,
        minute=at.replace(second=0, microsecond=0),
        defaults={
            "boot": boot,
            "capacity_bytes": 100,
            "used_bytes": used,
            "evictable_bytes": evictable,
            "preemptions": preemptions,
        },
    )


def evaluated(now: datetime, *, seconds: float = 0) -> datetime:
    """Evaluated as often as beat asks for it, for so long: when that was last."""
    at, end = now, now + timedelta(seconds=seconds)
    alerts_evaluate(now=at)
    while at + INTERVAL <= end:
        at += INTERVAL
        alerts_evaluate(now=at)
    return at
