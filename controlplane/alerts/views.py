"""Alerts and rules as dictionaries for the API, pages, webhooks and the audit trail. Changes nothing."""

from collections.abc import Mapping
from typing import Any

from controlplane.alerts.definitions import METRICS
from controlplane.alerts.models import Alert, AlertEvent, AlertRule
from tenants.actor import Actor


def alert_view(alert: Alert) -> dict[str, Any]:
    """Return the fields of an alert. `alert_shown` hides the id of an operators' rule from customers."""
    return {
        "id": alert.public_id,
        "rule": alert.rule_name,
        "rule_id": None if alert.rule is None or alert.rule.deleted_at else alert.rule.public_id,
        "built_in": alert.built_in or None,
        "metric": alert.metric,
        "unit": METRICS[alert.metric].unit,
        "place": alert.place,
        "agent": alert.agent or None,
        "state": alert.state,
        "value": alert.value,
        "has_data": alert.has_data,
        "comparison": alert.comparison,
        "threshold": alert.threshold,
        "words": alert.words,
        "next_step": alert.next_step,
        "since": alert.since,
        "fired_at": alert.fired_at,
        "resolved_at": alert.resolved_at,
        "silenced_until": alert.silenced_until,
    }


def alert_shown(alert: Alert, events: "list[AlertEvent]", actor: Actor) -> dict[str, Any]:
    """Return the alert with its acknowledgement and history. Customers do not see operators' webhooks, names or
    notes."""
    view = alert_view(alert)
    if alert.by_operator and not actor.is_operator:
        view["rule_id"] = None
        events = [event for event in events if event.kind not in OF_WEBHOOKS]
    acknowledged = None
    if alert.acknowledged_at is not None:
        author_and_note = _said_by(actor, alert.acknowledged_by, alert.note, is_operator=alert.acknowledged_by_operator)
        acknowledged = {"by": author_and_note[0], "at": alert.acknowledged_at, "note": author_and_note[1]}
    return view | {"acknowledged": acknowledged, "history": [event_view(event, actor) for event in events]}


OF_WEBHOOKS = (AlertEvent.Kind.DELIVERED, AlertEvent.Kind.NOT_DELIVERED)


def event_view(event: AlertEvent, actor: Actor) -> dict[str, Any]:
    is_note = event.kind == AlertEvent.Kind.ACKNOWLEDGED
    by, note = _said_by(actor, event.by, event.words, is_operator=event.by_operator)
    words = note if is_note else event.words
    return {"at": event.at, "what": event.kind, "by": by or None, "words": words or None, "value": event.value}


def _said_by(actor: Actor, name: str, note: str, *, is_operator: bool) -> tuple[str, str]:
    return ("an operator", "") if is_operator and not actor.is_operator else (name, note)


def rule_view(rule: AlertRule) -> dict[str, Any]:
    return {
        "id": rule.public_id,
        "built_in": rule.built_in or None,
        "name": rule.name,
        "scope": rule.scope,
        "place": rule_place(rule),
        "metric": rule.metric,
        "unit": METRICS[rule.metric].unit,
        "comparison": rule.comparison,
        "threshold": rule.threshold,
        "clears_at": rule.clears_at,
        "for_seconds": rule.for_seconds,
        "clear_for_seconds": rule.clear_for_seconds,
        "least_prompt_tokens": rule.least_prompt_tokens,
        "enabled": rule.enabled,
        "webhook_url": rule.webhook_url or None,
        "created_by": rule.created_by,
        "created_at": rule.created_at,
    }


def rule_place(rule: AlertRule) -> str:
    """Return the name of the scope that the rule watches. Needs no query if the rule was read `WITH_ITS_PLACE`."""
    if rule.group is not None:
        return rule.group.slug
    if rule.organisation is None:
        return "fleet"
    return rule.organisation.slug if rule.namespace is None else f"{rule.organisation.slug}/{rule.namespace.slug}"


def rule_told(rule: AlertRule) -> Mapping[str, Any]:
    """Return the rule for the audit trail: without the secret, and in plain JSON."""
    view = rule_view(rule)
    return {name: str(value) if name in ("id", "created_at") else value for name, value in view.items()}
