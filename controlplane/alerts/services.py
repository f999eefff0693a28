"""Actions of users: create, change and delete rules; acknowledge and silence alerts. Each is one transaction."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.utils import timezone

from controlplane.alerts.definitions import (
    CLEAR_FOR_SECONDS,
    COMPARISONS,
    METRICS,
    Comparison,
    clears_at_default,
)
from controlplane.alerts.models import Alert, AlertEvent, AlertRule, AlertState, Delivery
from controlplane.alerts.selectors import WITH_ITS_PLACE
from controlplane.alerts.telling import RESOLVED, deliveries_queue
from controlplane.alerts.views import rule_place, rule_told
from controlplane.alerts.webhooks import Policy, target_checked
from tenants.actor import Actor
from tenants.audit import Journal, audited
from tenants.crypto import seal, secret_text, unseal
from tenants.errors import Conflict, FieldProblem, InvalidFields, NotFound, NotPermitted
from tenants.fields import all_checked, name_check, note_check
from tenants.levels import FLEET, Place
from tenants.locks import organisation_lock
from tenants.models import AgentGroup
from tenants.services.housekeeping import rows_remove

WEBHOOK_KIND: Final = "lmw"
MOST_RULES: Final = 100  # per organisation
LONGEST_FOR: Final = 86_400
LONGEST_SILENCE: Final = timedelta(days=30)
LARGEST: Final = 1e12
ALERTS_KEPT: Final = timedelta(days=90)
ALERTS_OF_ONE: Final = 10_000  # of an organisation's own rules; beyond that, the oldest resolved alerts are deleted
LEAST_CLEAR_FOR: Final = 60  # for customers' rules: a ratio that flips must not create an alert every second
DELIVERIES_KEPT: Final = timedelta(days=7)
Kind = AlertEvent.Kind


@dataclass(frozen=True, slots=True)
class Draft:
    """A rule as a user submits it. None selects the default."""

    name: str
    metric: str
    comparison: str
    threshold: float
    clears_at: float | None = None
    for_seconds: int = 300
    clear_for_seconds: int = CLEAR_FOR_SECONDS
    least_prompt_tokens: int = 0
    enabled: bool = True
    webhook_url: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A rule, and its new webhook secret, if any. The secret is shown only once."""

    rule: AlertRule
    secret: str | None


def rule_create(*, actor: Actor, draft: Draft, place: Place = FLEET, group: AgentGroup | None = None) -> Made:
    """Create a rule for the group, the organisation or its namespace; without any of them, for the whole fleet."""
    rule = AlertRule(
        scope=_scope(place, group),
        group=group,
        organisation=place.organisation,
        namespace=place.namespace,
        metric=draft.metric,
        comparison=draft.comparison,
        created_by=actor.public_name,
        author_is_operator=actor.is_operator,
    )
    _kind_check(rule, actor)
    _values_set(rule, _values(draft), actor)
    with audited() as journal:
        if place.organisation is not None:
            organisation_lock(place.organisation, actor=actor)
            _room_check(rule)
        secret = _secret_made(rule) if rule.webhook_url else None
        rule.save()
        _record(journal, actor, "alert-rule.create", rule, after=rule_told(rule))
    return Made(rule, secret)


def rule_update(*, actor: Actor, rule: AlertRule, changes: Mapping[str, Any], rotates_secret: bool = False) -> Made:
    """Change the given fields. Firing alerts continue with the new values, or end if the rule is disabled."""
    with audited() as journal:
        locked_rule = _held(rule)
        before = rule_told(locked_rule)
        _values_set(locked_rule, changes, actor)
        is_new = bool(locked_rule.webhook_url) and (locked_rule.sealed_secret is None or rotates_secret)
        secret = _secret_made(locked_rule) if is_new else None
        if rotates_secret and not locked_rule.webhook_url:
            raise InvalidFields([FieldProblem("rotate_secret", "there is no webhook to have a secret")])
        locked_rule.save()
        _followed(locked_rule)
        after = {**rule_told(locked_rule), "secret": "new" if secret else "as it was"}
        _record(journal, actor, "alert-rule.update", locked_rule, before=before, after=after)
    return Made(locked_rule, secret)


def rule_delete(*, actor: Actor, rule: AlertRule) -> None:
    """Delete the rule. Its alerts stay in the history; those that fire end, and its webhook is notified of that."""
    with audited() as journal:
        locked_rule = _held(rule)
        if locked_rule.built_in:
            problem = 'is built in and cannot be deleted; disable it: {"enabled": false}'
            raise Conflict([FieldProblem("rule", problem)])
        _record(journal, actor, "alert-rule.delete", locked_rule, before=rule_told(locked_rule))
        _alerts_end(locked_rule)
        if locked_rule.deliveries.filter(state=Delivery.State.WAITING).exists():
            locked_rule.enabled, locked_rule.deleted_at = False, timezone.now()
            locked_rule.save(update_fields=["enabled", "deleted_at"])
        else:
            locked_rule.delete()


def alert_acknowledge(*, actor: Actor, alert: Alert, note: str = "") -> Alert:
    """Acknowledge the alert. If several users do, the newest acknowledgement counts and the history keeps all."""
    checked_note, now = note_check(note), timezone.now()
    with audited() as journal:
        locked_alert = _alert_held(alert)
        locked_alert.acknowledged_at, locked_alert.acknowledged_by, locked_alert.note = (
            now,
            actor.name[:254],
            checked_note,
        )
        locked_alert.acknowledged_by_operator = actor.is_operator
        locked_alert.save(update_fields=["acknowledged_at", "acknowledged_by", "acknowledged_by_operator", "note"])
        _noted(journal, actor, locked_alert, Kind.ACKNOWLEDGED, checked_note, now)
    return locked_alert


def alert_silence(*, actor: Actor, alert: Alert, until: datetime | None) -> Alert:
    """Send nothing before `until` about this alert, or later ones of the same rule and subject. None ends a silence."""
    now = timezone.now()
    if alert.by_operator and not actor.is_operator:
        raise NotPermitted("This alert is of a rule of the operators, and they rely on it: acknowledge it instead.")
    if until is not None and not now < until <= now + LONGEST_SILENCE:
        raise InvalidFields([FieldProblem("until", f"must be within the next {LONGEST_SILENCE.days} days")])
    with audited() as journal:
        locked_alert = _alert_held(alert)
        locked_alert.silenced_until = until
        locked_alert.save(update_fields=["silenced_until"])
        if until is None:  # the silence may come from an earlier alert of this subject
            Alert.objects.filter(rule=locked_alert.rule_id, subject=locked_alert.subject).update(silenced_until=None)
        kind, words = (Kind.UNSILENCED, "") if until is None else (Kind.SILENCED, f"Until {until:%F %R} UTC.")
        _noted(journal, actor, locked_alert, kind, words, now)
    return locked_alert


def webhook_secret(rule: AlertRule) -> str:
    if rule.sealed_secret is None:
        raise LookupError(f"rule {rule.pk} has no webhook")
    return unseal(rule.sealed_secret, place=secret_place(rule)).decode()


def secret_place(rule: AlertRule) -> str:
    return f"webhook of alert rule {rule.public_id}"


def webhook_secrets() -> "tuple[QuerySet[AlertRule], str, Callable[[AlertRule], str]]":
    """Return the webhook secrets for re-encryption under a new master key."""
    return AlertRule.objects.exclude(sealed_secret=None), "sealed_secret", secret_place


def housekeeping(*, now: datetime) -> int:
    """Delete expired rows and return how many. The next round deletes the rest."""
    waiting_deliveries = Delivery.objects.filter(rule=OuterRef("pk"), state=Delivery.State.WAITING)
    expired: list[QuerySet[Any]] = [
        Delivery.objects.filter(ended_at__lt=now - DELIVERIES_KEPT),
        AlertRule.objects.filter(~Exists(waiting_deliveries), deleted_at__lt=now),
        Alert.objects.filter(resolved_at__lt=now - ALERTS_KEPT),
    ]
    return sum(rows_remove(rows) for rows in expired) + _too_many_remove()


def _too_many_remove() -> int:
    """Keep the newest ALERTS_OF_ONE alerts of each organisation's own rules, or steering a ratio could fill the
    table."""
    own_alerts = Alert.objects.filter(by_operator=False, organisation__isnull=False)
    crowded_organisations = own_alerts.values("organisation").annotate(count=Count("*")).filter(count__gt=ALERTS_OF_ONE)
    return sum(
        _oldest_remove(own_alerts.filter(organisation=row["organisation"])) for row in crowded_organisations.order_by()
    )


def _oldest_remove(alerts: QuerySet[Alert]) -> int:
    newest = alerts.order_by("-number").values_list("number", flat=True)
    oldest_kept = newest[ALERTS_OF_ONE - 1 : ALERTS_OF_ONE].first()
    return 0 if oldest_kept is None else rows_remove(alerts.filter(number__lt=oldest_kept, state=Alert.State.RESOLVED))


# Checks


def _scope(level: Place, group: AgentGroup | None) -> str:
    if group is not None and level.organisation is not None:
        raise InvalidFields([FieldProblem("group", "goes with no organisation: leave one of the two out")])
    if group is not None:
        return "group"
    if level.organisation is None:
        return "fleet"
    return "organisation" if level.namespace is None else "namespace"


def _kind_check(rule: AlertRule, actor: Actor) -> None:
    """Check the rule's metric, scope and comparison, which never change later."""
    problems = list[FieldProblem]()
    metric = METRICS.get(rule.metric)
    permitted_metrics = [metric.name for metric in METRICS.values() if actor.is_operator or metric.is_for_customers]
    if rule.metric not in permitted_metrics or metric is None:
        problems.append(FieldProblem("metric", f"{rule.metric[:80]!r} is none of {', '.join(permitted_metrics)}"))
    elif rule.scope in ("organisation", "namespace") and metric.subject != "namespace":
        problems.append(FieldProblem("place", f"{metric.name} is measured of each {metric.subject}: fleet or a group"))
    if rule.comparison not in COMPARISONS:
        problems.append(FieldProblem("comparison", f"{rule.comparison[:80]!r} is none of {', '.join(COMPARISONS)}"))
    if problems:
        raise InvalidFields(problems)


def _values(draft: Draft) -> dict[str, Any]:
    names = ("name", "threshold", "clears_at", "for_seconds", "clear_for_seconds", "least_prompt_tokens", "enabled")
    return {name: getattr(draft, name) for name in (*names, "webhook_url")}


def _values_set(rule: AlertRule, values: Mapping[str, Any], actor: Actor) -> None:
    """Set and check all values together, so that one error names every problem."""
    previous_url = rule.webhook_url
    for name, value in values.items():
        setattr(rule, name, value)
    changes_limits = "threshold" in values or "clears_at" in values
    if changes_limits and values.get("clears_at") is None:
        rule.clears_at = clears_at_default(cast(Comparison, rule.comparison), rule.threshold)
    if "webhook_url" in values and rule.webhook_url != previous_url:
        rule.webhook_by_operator = actor.is_operator
    rule.name, *_ = all_checked(
        lambda: name_check(rule.name), lambda: _numbers_check(rule), lambda: _webhook_check(rule, previous_url)
    )


def _numbers_check(rule: AlertRule) -> None:
    problems = [
        *_bounds_problems(rule, ("threshold", "clears_at"), 0, LARGEST),
        *_bounds_problems(rule, ("for_seconds",), 0, LONGEST_FOR),
        *_bounds_problems(rule, ("clear_for_seconds",), 0 if rule.author_is_operator else LEAST_CLEAR_FOR, LONGEST_FOR),
        *_bounds_problems(rule, ("least_prompt_tokens",), 0, LARGEST),
    ]
    is_above = rule.comparison == "above"
    if not problems and (rule.clears_at > rule.threshold if is_above else rule.clears_at < rule.threshold):
        comparative = "more" if is_above else "less"
        problem = (
            f"{rule.clears_at:g} is {comparative} than the threshold {rule.threshold:g}: it would end before it begins"
        )
        problems.append(FieldProblem("clears_at", problem))
    if not problems and rule.least_prompt_tokens and not METRICS[rule.metric].uses_tokens:
        problems.append(FieldProblem("least_prompt_tokens", f"means nothing for {rule.metric}"))
    if problems:
        raise InvalidFields(problems)


def _bounds_problems(rule: AlertRule, names: Iterable[str], least: float, most: float) -> list[FieldProblem]:
    values = {name: getattr(rule, name) for name in names}
    return [
        FieldProblem(name, f"{value:g} is not {least:g} to {most:g}")
        for name, value in values.items()
        if not (math.isfinite(value) and least <= value <= most)
    ]


def _webhook_check(rule: AlertRule, previous_url: str) -> None:
    if rule.webhook_url and rule.webhook_url != previous_url:
        target_checked(rule.webhook_url, Policy(rule.webhook_by_operator, settings.ENVIRONMENT.webhook_hosts))


def _room_check(rule: AlertRule) -> None:
    if AlertRule.objects.filter(organisation=rule.organisation, deleted_at=None).count() >= MOST_RULES:
        raise Conflict([FieldProblem("place", f"has {MOST_RULES} alert rules already, which is the most")])


# Writes


def _secret_made(rule: AlertRule) -> str:
    secret = secret_text(WEBHOOK_KIND)
    rule.sealed_secret = seal(secret.encode(), place=secret_place(rule))
    return secret


def _held(rule: AlertRule) -> AlertRule:
    rows = AlertRule.objects.select_related(*WITH_ITS_PLACE).select_for_update(of=("self",), no_key=True)
    locked_rule = rows.filter(pk=rule.pk, deleted_at=None).first()
    if locked_rule is None:
        raise NotFound("alert rule")
    return locked_rule


def _alert_held(alert: Alert) -> Alert:
    rows = Alert.objects.select_related("rule").select_for_update(of=("self",), no_key=True)
    locked_alert = rows.filter(pk=alert.pk).first()
    if locked_alert is None:
        raise NotFound("alert")
    return locked_alert


def _followed(rule: AlertRule) -> None:
    if not rule.enabled:
        _alerts_end(rule)
    if not rule.webhook_url:
        waiting = rule.deliveries.filter(state=Delivery.State.WAITING)
        waiting.update(
            state=Delivery.State.GIVEN_UP, problem="the rule has no webhook any more", ended_at=timezone.now()
        )


def _alerts_end(rule: AlertRule) -> None:
    """Resolve the rule's firing alerts and drop its pending states."""
    now = timezone.now()
    AlertState.objects.filter(rule=rule).delete()
    firing = list(rule.alerts.select_for_update(no_key=True).filter(state=Alert.State.FIRING))
    for alert in firing:
        alert.state, alert.resolved_at, alert.rule = Alert.State.RESOLVED, now, rule
    Alert.objects.bulk_update(firing, ["state", "resolved_at"])
    AlertEvent.objects.bulk_create(
        [AlertEvent(alert=alert, kind=Kind.RESOLVED, at=now, words="Its rule is off.") for alert in firing]
    )
    deliveries_queue([alert for alert in firing if alert.is_told and rule.webhook_url], RESOLVED, now=now)


def _noted(journal: Journal, actor: Actor, alert: Alert, kind: Kind, words: str, now: datetime) -> None:
    AlertEvent.objects.create(
        alert=alert, kind=kind, at=now, by=actor.name[:254], by_operator=actor.is_operator, words=words
    )
    after = {"alert": str(alert.public_id), "rule": alert.rule_name, "words": words}
    target = f"alert of {alert.place}"
    journal.record(actor, f"alert.{VERBS[kind]}", target, organisation=alert.organisation, after=after)


VERBS: Final[Mapping[Kind, str]] = {
    Kind.ACKNOWLEDGED: "acknowledge",
    Kind.SILENCED: "silence",
    Kind.UNSILENCED: "unsilence",
}


def _record(journal: Journal, actor: Actor, verb: str, rule: AlertRule, **changes: Any) -> None:
    target = f"alert rule {rule.name} of {rule_place(rule)}"
    # An operators' rule about an organisation appears only in the operators' audit trail.
    organisation = None if rule.author_is_operator else rule.organisation
    journal.record(actor, verb, target, organisation=organisation, **changes)
