"""One evaluation round: read rules and measurements, decide, write what changed. One round runs at a time.

A round is one transaction with a constant number of queries. A round that is killed changes nothing, and the next one
continues from the states of the round before.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from django.db import connection, transaction

from controlplane.alerts.definitions import BUILT_IN, METRICS, BuiltIn, Comparison
from controlplane.alerts.evaluate import OK, Event, Phase, Reading, Rule, State, evaluate
from controlplane.alerts.measuring import Measured, measured
from controlplane.alerts.models import Alert, AlertEvent, AlertRule, AlertState, Evaluation
from controlplane.alerts.subjects import Subject, living
from controlplane.alerts.telling import FIRED, RESOLVED, deliveries_queue, is_to_be_told
from controlplane.alerts.words import alert_words
from tenants.actor import SYSTEM

LOCK = 7_446_220_463  # a number that no other lock uses
THE_NEWEST = 1
Key = tuple[int, str]  # a rule's number, and the key of a subject
Kind = AlertEvent.Kind


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a round for one rule and one subject."""

    rule: AlertRule
    subject: Subject
    before: State
    after: State
    event: Event | None

    @property
    def key(self) -> Key:
        return self.rule.pk, self.subject.key


@dataclass(frozen=True, slots=True)
class Round:
    """The alerts that a round started and ended."""

    fired: Sequence[Alert]
    resolved: Sequence[Alert]


@transaction.atomic
def alerts_evaluate(*, now: datetime) -> Round | None:
    """Run a round. Return None if another round is running, because it sees the same values."""
    if not _alone():
        return None
    rules = rules_held(now=now)
    subjects = living()
    states = {(row.rule_id, row.subject): row for row in AlertState.objects.all()}
    verdicts = list(_verdicts(rules, measured(subjects, now=now), states, now))
    evaluation_round = _written(verdicts, states, rules, now)
    Evaluation.objects.bulk_create(
        [Evaluation(pk=THE_NEWEST, at=now)], update_conflicts=True, unique_fields=["id"], update_fields=["at"]
    )
    return evaluation_round


def _alone() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        return bool(cursor.fetchone() == (True,))


@transaction.atomic
def built_in_rules_ensure(*, now: datetime) -> None:
    """Create the built-in rules before the first evaluation, so that users see them from the start."""
    if _alone():
        rules_held(now=now)


def rules_held(*, now: datetime) -> list[AlertRule]:
    """Return all rules, locked until commit. Create the built-in rules that are missing."""
    rules = list(AlertRule.objects.filter(deleted_at=None).select_for_update(no_key=True).order_by("number"))
    missing = {definition.key for definition in BUILT_IN} - {rule.built_in for rule in rules}
    if not missing:
        return rules
    new_rules = [_made(definition, now) for definition in BUILT_IN if definition.key in missing]
    return rules + AlertRule.objects.bulk_create(new_rules)


def _made(definition: BuiltIn, now: datetime) -> AlertRule:
    return AlertRule(
        built_in=definition.key,
        name=definition.name,
        scope="fleet",
        metric=definition.metric,
        comparison=definition.comparison,
        threshold=definition.threshold,
        clears_at=definition.clears_at,
        for_seconds=definition.for_seconds,
        clear_for_seconds=definition.clear_for_seconds,
        least_prompt_tokens=definition.least_prompt_tokens,
        created_by=SYSTEM.name,
        author_is_operator=True,
        created_at=now,
    )


# Decisions


class Places:
    """The readings of one metric, indexed by the scopes that rules can have."""

    def __init__(self, readings: Measured) -> None:
        self._by_place: dict[tuple[str, int | None], list[tuple[Subject, Reading]]] = defaultdict(list)
        for subject, reading in readings.values():
            for scope_key in _places_of(subject):
                self._by_place[scope_key].append((subject, reading))

    def of(self, rule: AlertRule) -> Sequence[tuple[Subject, Reading]]:
        return self._by_place.get(_place_of(rule), ())


def _places_of(subject: Subject) -> Iterator[tuple[str, int | None]]:
    yield "fleet", None
    yield "group", subject.group_id
    yield "organisation", subject.organisation_id
    yield "namespace", subject.namespace_id


def _place_of(rule: AlertRule) -> tuple[str, int | None]:
    if rule.scope == "namespace":
        return rule.scope, rule.namespace_id
    return rule.scope, rule.organisation_id if rule.scope == "organisation" else rule.group_id


def _verdicts(
    rules: Sequence[AlertRule],
    readings_by_metric: Mapping[str, Measured],
    states: Mapping[Key, AlertState],
    now: datetime,
) -> Iterator[Verdict]:
    index_by_metric = {metric: Places(readings) for metric, readings in readings_by_metric.items()}
    for rule in (rule for rule in rules if rule.enabled):
        condition = rule_said(rule)
        for subject, reading in index_by_metric[rule.metric].of(rule):
            row = states.get((rule.pk, subject.key))
            before = OK if row is None else _state(row)
            after, event = evaluate(condition, before, reading, now)
            if before.phase != "ok" or after.phase != "ok":
                yield Verdict(rule, subject, before, after, event)


def rule_said(rule: AlertRule) -> Rule:
    return Rule(
        comparison=cast(Comparison, rule.comparison),
        threshold=rule.threshold,
        clears_at=rule.clears_at,
        for_seconds=rule.for_seconds,
        clear_for_seconds=rule.clear_for_seconds,
        least_prompt_tokens=rule.least_prompt_tokens,
    )


def _state(row: AlertState) -> State:
    return State(cast(Phase, row.phase), row.since, row.seconds, row.at, row.has_data, row.value)


# Writes


def _written(
    verdicts: Sequence[Verdict], states: Mapping[Key, AlertState], rules: Sequence[AlertRule], now: datetime
) -> Round:
    by_number = {rule.pk: rule for rule in rules}
    firing: dict[Key, Alert] = {
        (alert.rule_id or 0, alert.subject): alert
        for alert in Alert.objects.filter(state=Alert.State.FIRING).select_for_update()
    }
    for alert in firing.values():
        alert.rule = None if alert.rule_id is None else by_number.get(alert.rule_id)
    _states_keep(verdicts, states, now)
    fired = _fired([verdict for verdict in verdicts if verdict.event == FIRED], now)
    resolved = _followed(verdicts, firing, now)
    still_firing = [*fired, *(alert for alert in firing.values() if alert.state == Alert.State.FIRING)]
    _told(still_firing, resolved, now)
    return Round(fired, resolved)


def _states_keep(verdicts: Sequence[Verdict], states: Mapping[Key, AlertState], now: datetime) -> None:
    """Store a row for each state that is not ok. Delete all others, also those of deleted subjects and disabled
    rules."""
    stored_rows = {verdict.key: _row(verdict, now) for verdict in verdicts if verdict.after.phase != "ok"}
    AlertState.objects.bulk_create(
        stored_rows.values(),
        update_conflicts=True,
        unique_fields=["rule", "subject"],
        update_fields=["phase", "since", "seconds", "at", "has_data", "value"],
    )
    obsolete_ids = [row.pk for key, row in states.items() if key not in stored_rows]
    AlertState.objects.filter(pk__in=obsolete_ids).delete()


def _row(verdict: Verdict, now: datetime) -> AlertState:
    after = verdict.after
    return AlertState(
        rule=verdict.rule,
        subject=verdict.subject.key,
        phase=after.phase,
        since=after.since or now,
        seconds=after.seconds,
        at=after.at or now,
        has_data=after.has_data,
        value=after.value,
    )


def _fired(verdicts: Sequence[Verdict], now: datetime) -> list[Alert]:
    if not verdicts:
        return []
    silences = _silences(verdicts, now)
    alerts = Alert.objects.bulk_create([_alert(verdict, silences.get(verdict.key), now) for verdict in verdicts])
    _events(alerts, Kind.FIRED, now)
    return alerts


def _silences(verdicts: Sequence[Verdict], now: datetime) -> Mapping[Key, datetime]:
    """Return the silences in force. A silence applies to a subject: an alert that fires there again takes it over."""
    rules = {verdict.rule.pk for verdict in verdicts}
    rows = Alert.objects.filter(rule__in=rules, silenced_until__gt=now).order_by("number")
    silences = rows.values_list("rule_id", "subject", "silenced_until")
    return {(rule, subject): until for rule, subject, until in silences if until is not None}


def _alert(verdict: Verdict, silenced_until: datetime | None, now: datetime) -> Alert:
    rule, subject = verdict.rule, verdict.subject
    return Alert(
        rule=rule,
        rule_name=rule.name,
        built_in=rule.built_in,
        by_operator=rule.author_is_operator,
        metric=rule.metric,
        subject=subject.key,
        place=subject.place,
        organisation_id=subject.organisation_id,
        namespace_id=subject.namespace_id,
        agent=subject.agent,
        comparison=rule.comparison,
        threshold=rule.threshold,
        value=verdict.after.value or 0.0,
        words=_words(verdict),
        next_step=METRICS[rule.metric].next_step,
        since=verdict.after.since or now,
        fired_at=now,
        silenced_until=silenced_until,
    )


def _words(verdict: Verdict) -> str:
    rule = verdict.rule
    return alert_words(
        metric=rule.metric,
        place=verdict.subject.place,
        value=verdict.after.value or 0.0,
        comparison=cast(Comparison, rule.comparison),
        threshold=rule.threshold,
        seconds=rule.for_seconds,
    )


def _followed(verdicts: Sequence[Verdict], firing: Mapping[Key, Alert], now: datetime) -> list[Alert]:
    """Update the firing alerts, and return those that are over."""
    by_key = {verdict.key: verdict for verdict in verdicts}
    resolved, changed = list[Alert](), list[Alert]()
    for key, alert in firing.items():
        verdict = by_key.get(key)
        if verdict is None or verdict.event == RESOLVED:
            alert.state, alert.resolved_at = Alert.State.RESOLVED, now
            resolved.append(alert)
        if (verdict is not None and _brought_up_to_date(alert, verdict)) or alert.state == Alert.State.RESOLVED:
            changed.append(alert)
    Alert.objects.bulk_update(changed, ["state", "resolved_at", "value", "has_data", "threshold"])
    reasons = {alert.pk: _why_over(alert) for key, alert in firing.items() if key not in by_key}
    _events(resolved, Kind.RESOLVED, now, reasons)
    return resolved


def _brought_up_to_date(alert: Alert, verdict: Verdict) -> bool:
    """Update the alert's values and return whether any changed. Its words stay those of the moment it fired."""
    after, previous = verdict.after, (alert.value, alert.has_data, alert.threshold)
    alert.value = alert.value if after.value is None else after.value
    alert.has_data, alert.threshold = after.has_data, verdict.rule.threshold
    return previous != (alert.value, alert.has_data, alert.threshold)


def _why_over(alert: Alert) -> str:
    """Return why an alert ended after its subject was no longer measured."""
    if alert.metric == "reconciliation":
        return "The numbers are equal again."
    return "What it was about is gone, or its rule is off."


def _events(alerts: Sequence[Alert], kind: Kind, now: datetime, words: Mapping[int, str] | None = None) -> None:
    words_by_alert = words or {}
    AlertEvent.objects.bulk_create(
        [
            AlertEvent(alert=alert, kind=kind, at=now, value=alert.value, words=words_by_alert.get(alert.pk, ""))
            for alert in alerts
        ]
    )


def _told(firing: Sequence[Alert], resolved: Sequence[Alert], now: datetime) -> None:
    """Queue webhooks for firing alerts that were not notified yet, and for the end of those that were."""
    alerts_to_notify = [alert for alert in firing if alert.rule is not None and is_to_be_told(alert, alert.rule, now)]
    for alert in alerts_to_notify:
        alert.is_told = True
    Alert.objects.bulk_update(alerts_to_notify, ["is_told"])
    deliveries_queue(alerts_to_notify, FIRED, now=now)
    deliveries_queue(
        [alert for alert in resolved if alert.is_told and alert.rule is not None and alert.rule.webhook_url],
        RESOLVED,
        now=now,
    )
