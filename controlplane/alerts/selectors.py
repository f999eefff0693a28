"""The alerts and rules that an actor may see. To anyone else they do not exist. Changes nothing."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from django.db.models import Case, Count, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, NullIf

from controlplane.alerts.definitions import BUILT_IN, METRICS, OWN_RULES
from controlplane.alerts.models import Alert, AlertEvent, AlertRule, Delivery, Evaluation
from tenants.actor import Actor
from tenants.errors import NotFound

FOR_CUSTOMERS = [metric.name for metric in METRICS.values() if metric.is_for_customers]
PAGING = [definition.key for definition in BUILT_IN if definition.severity == "page"]
WITH_ITS_PLACE = ("group", "organisation", "namespace")


def alerts_visible(actor: Actor) -> "QuerySet[Alert]":
    """Return the alerts that the actor may see.

    Operators see all. An organisation sees those of its namespaces, and a key bound to namespaces those of these: by
    their own rules, and by built-in rules on metrics for customers.
    """
    alerts = Alert.objects.select_related("rule")
    if actor.organisation_id is None:
        return alerts
    is_visible = Q(by_operator=False) | ~Q(built_in="")
    organisation_alerts = alerts.filter(is_visible, organisation=actor.organisation_id, metric__in=FOR_CUSTOMERS)
    return (
        organisation_alerts
        if actor.namespace_ids is None
        else organisation_alerts.filter(namespace__in=actor.namespace_ids)
    )


def alerts_worst_first(alerts: "QuerySet[Alert]", *, now: datetime) -> "QuerySet[Alert]":
    """Return the firing alerts by urgency: unsilenced, unacknowledged and paging ones first, then the
    longest-lasting."""
    return alerts.filter(state=Alert.State.FIRING).order_by(
        Case(When(silenced_until__gt=now, then=1), default=0),
        Case(When(acknowledged_at=None, then=0), default=1),
        Case(When(built_in__in=PAGING, then=0), default=1),
        "since",
        "number",
    )


def alerts_counts(alerts: "QuerySet[Alert]", *, now: datetime) -> Mapping[str, int]:
    """Count alerts: `firing`, `unattended` (neither acknowledged nor silenced), `urgent` (unattended and paging),
    `over`."""
    is_firing, is_unsilenced = Q(state=Alert.State.FIRING), Q(silenced_until=None) | Q(silenced_until__lte=now)
    is_open = is_firing & is_unsilenced & Q(acknowledged_at=None)
    return alerts.aggregate(
        firing=Count("pk", filter=is_firing),
        unattended=Count("pk", filter=is_open),
        urgent=Count("pk", filter=is_open & Q(built_in__in=PAGING)),
        over=Count("pk", filter=~is_firing),
    )


def alert_for(actor: Actor, alert_id: UUID) -> Alert:
    alert = alerts_visible(actor).filter(public_id=alert_id).first()
    if alert is None:
        raise NotFound("alert")
    return alert


def alerts_events(alerts: Iterable[Alert]) -> Mapping[int, list[AlertEvent]]:
    """Return the history of each alert, oldest event first, in one query."""
    events_by_alert: dict[int, list[AlertEvent]] = {alert.pk: [] for alert in alerts}
    for event in AlertEvent.objects.filter(alert__in=list(events_by_alert)).order_by("pk"):
        events_by_alert[event.alert_id].append(event)
    return events_by_alert


def rules_visible(actor: Actor) -> "QuerySet[AlertRule]":
    """Return the rules that the actor may see. Only operators see operators' rules, even those about an
    organisation."""
    rules = AlertRule.objects.filter(deleted_at=None).select_related(*WITH_ITS_PLACE)
    if actor.organisation_id is None:
        return rules
    organisation_rules = rules.filter(organisation=actor.organisation_id, author_is_operator=False)
    return (
        organisation_rules
        if actor.namespace_ids is None
        else organisation_rules.filter(namespace__in=actor.namespace_ids)
    )


def rule_for(actor: Actor, rule_id: UUID) -> AlertRule:
    rule = rules_visible(actor).filter(public_id=rule_id).first()
    if rule is None:
        raise NotFound("alert rule")
    return rule


def firing_by_rule() -> Mapping[str, int]:
    """Count the firing alerts by built-in rule. Rules made by users share one count."""
    rule_name = Coalesce(NullIf(F("built_in"), Value("")), Value(OWN_RULES))
    rows = Alert.objects.filter(state=Alert.State.FIRING).values_list(rule_name).annotate(count=Count("*")).order_by()
    return dict(rows)


def deliveries_waiting() -> int:
    return Delivery.objects.filter(state=Delivery.State.WAITING).count()


def evaluation_newest() -> Evaluation | None:
    return Evaluation.objects.first()
