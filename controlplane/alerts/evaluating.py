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
    there = living()
    states = {(one.rule_id, one.subject): one for one in AlertState.objects.all()}
    verdicts = list(_verdicts(rules, measured(there, now=now), states, now))
    found = _written(verdicts, states, rules, now)
    Evaluation.objects.bulk_create(
        [Evaluation(pk=THE_NEWEST, at=now)], update_conflicts=True, unique_fields=["id"], update_fields=["at"]
    )
    return found


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
    missing = {one.key for one in BUILT_IN} - {one.built_in for one in rules}
    if not missing:
        return rules
    made = [_made(one, now) for one in BUILT_IN if one.key in missing]
    return rules + AlertRule.objects.bulk_create(made)


def _made(one: BuiltIn, now: datetime) -> AlertRule:
    return AlertRule(
        built_in=one.key,
        name=one.name,
        scope="fleet",
        metric=one.metric,
        comparison=one.comparison,
        threshold=one.threshold,
        clears_at=one.clears_at,
        for_seconds=one.for_seconds,
        clear_for_seconds=one.clear_for_seconds,
        least_prompt_tokens=one.least_prompt_tokens,
        created_by=SYSTEM.name,
        author_is_operator=True,
        created_at=now,
    )


# Decisions


class Places:
    """The readings of one metric, indexed by the scopes that rules can have."""

    def __init__(self, found: Measured) -> None:
        self._by_place: dict[tuple[str, int | None], list[tuple[Subject, Reading]]] = defaultdict(list)
        for subject, reading in found.values():
            for place in _places_of(subject):
                self._by_place[place].append((subject, reading))

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
    rules: Sequence[AlertRule], found: Mapping[str, Measured], states: Mapping[Key, AlertState], now: datetime
) -> Iterator[Verdict]:
    places = {metric: Places(readings) for metric, readings in found.items()}
    for rule in (one for one in rules if one.enabled):
        said = rule_said(rule)
        for subject, reading in places[rule.metric].of(rule):
            row = states.get((rule.pk, subject.key))
            before = OK if row is None else _state(row)
            after, event = evaluate(said, before, reading, now)
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
    by_number = {one.pk: one for one in rules}
    firing: dict[Key, Alert] = {
        (one.rule_id or 0, one.subject): one
        for one in Alert.objects.filter(state=Alert.State.FIRING).select_for_update()
    }
    for alert in firing.values():
        alert.rule = None if alert.rule_id is None else by_number.get(alert.rule_id)
    _states_keep(verdicts, states, now)
    fired = _fired([one for one in verdicts if one.event == FIRED], now)
    resolved = _followed(verdicts, firing, now)
    going_on = [*fired, *(one for one in firing.values() if one.state == Alert.State.FIRING)]
    _told(going_on, resolved, now)
    return Round(fired, resolved)


def _states_keep(verdicts: Sequence[Verdict], states: Mapping[Key, AlertState], now: datetime) -> None:
    """Store a row for each state that is not ok. Delete all others, also those of deleted subjects and disabled
    rules."""
    kept = {one.key: _row(one, now) for one in verdicts if one.after.phase != "ok"}
    AlertState.objects.bulk_create(
        kept.values(),
        update_conflicts=True,
        unique_fields=["rule", "subject"],
        update_fields=["phase", "since", "seconds", "at", "has_data", "value"],
    )
    over = [row.pk for key, row in states.items() if key not in kept]
    AlertState.objects.filter(pk__in=over).delete()


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
    made = Alert.objects.bulk_create([_alert(one, silences.get(one.key), now) for one in verdicts])
    _events(made, Kind.FIRED, now)
    return made


def _silences(verdicts: Sequence[Verdict], now: datetime) -> Mapping[Key, datetime]:
    """Return the silences in force. A silence applies to a subject: an alert that fires there again takes it over."""
    rules = {one.rule.pk for one in verdicts}
    rows = Alert.objects.filter(rule__in=rules, silenced_until__gt=now).order_by("number")
    found = rows.values_list("rule_id", "subject", "silenced_until")
    return {(rule, subject): until for rule, subject, until in found if until is not None}


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
    by_key = {one.key: one for one in verdicts}
    resolved, changed = list[Alert](), list[Alert]()
    for key, alert in firing.items():
        verdict = by_key.get(key)
        if verdict is None or verdict.event == RESOLVED:
            alert.state, alert.resolved_at = Alert.State.RESOLVED, now
            resolved.append(alert)
        if (verdict is not None and _brought_up_to_date(alert, verdict)) or alert.state == Alert.State.RESOLVED:
            changed.append(alert)
    Alert.objects.bulk_update(changed, ["state", "resolved_at", "value", "has_data", "threshold"])
    gone = {alert.pk: _why_over(alert) for key, alert in firing.items() if key not in by_key}
    _events(resolved, Kind.RESOLVED, now, gone)
    return resolved


def _brought_up_to_date(alert: Alert, verdict: Verdict) -> bool:
    """Update the alert's values and return whether any changed. Its words stay those of the moment it fired."""
    after, was = verdict.after, (alert.value, alert.has_data, alert.threshold)
    alert.value = alert.value if after.value is None else after.value
    alert.has_data, alert.threshold = after.has_data, verdict.rule.threshold
    return was != (alert.value, alert.has_data, alert.threshold)


def _why_over(alert: Alert) -> str:
    """Return why an alert ended after its subject was no longer measured."""
    if alert.metric == "reconciliation":
        return "The numbers are equal again."
    return "What it was about is gone, or its rule is off."


def _events(alerts: Sequence[Alert], kind: Kind, now: datetime, words: Mapping[int, str] | None = None) -> None:
    said = words or {}
    AlertEvent.objects.bulk_create(
        [AlertEvent(alert=one, kind=kind, at=now, value=one.value, words=said.get(one.pk, "")) for one in alerts]
    )


def _told(firing: Sequence[Alert], resolved: Sequence[Alert], now: datetime) -> None:
    """Queue webhooks for firing alerts that were not notified yet, and for the end of those that were."""
    news = [one for one in firing if one.rule is not None and is_to_be_told(one, one.rule, now)]
    for one in news:
        one.is_told = True
    Alert.objects.bulk_update(news, ["is_told"])
    deliveries_queue(news, FIRED, now=now)
    deliveries_queue(
        [one for one in resolved if one.is_told and one.rule is not None and one.rule.webhook_url], RESOLVED, now=now
    )
