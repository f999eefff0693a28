"""Alerts and their rules as pages word them: what fires, by how much, since when, and who looks after it. Pure.

Of an alert it knows what controlplane.alerts.views.alert_shown lets this reader have, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from controlplane.alerts.definitions import BUILT_IN_BY_KEY, METRICS, Comparison, value_words
from controlplane.alerts.words import condition_words
from controlplane.dashboard.frame.words import counted, duration

EVALUATED_WITHIN: Final = timedelta(minutes=2)  # after that, what fires may be old
PLAIN_UNITS = {"share": "%", "seconds": "s", "times": "times", "count": "", "tokens": "tokens"}
NAMES: Mapping[str, str] = {
    "pool_use": "Pool in use",
    "hit_ratio": "Hit rate",
    "evictions": "Evictions against the mean",
    "preemptions": "Requests put back",
    "silence": "Silence of an agent",
    "drift": "Drift of an agent",
    "disk_wait": "An agent’s wait for its disk",
    "clock_skew": "An agent’s clock",
    "reconciliation": "Numbers that differ",
    "reconciliation_age": "Age of the last comparison",
    "audit_anchors": "Audit anchors that do not fit",
    "audit_anchor_age": "Age of the oldest unanchored audit record",
    "isolation": "Failed isolation probes",
    "isolation_timing": "Timing that tells of others",
    "integrity": "Problems in an engine’s books",
    "refused_rows": "Usage rows refused",
}
EVENTS = {
    "fired": "Fired",
    "resolved": "Over",
    "acknowledged": "Acknowledged",
    "silenced": "Silenced",
    "unsilenced": "Silence lifted",
    "delivered": "Webhook delivered",
    "not_delivered": "Webhook not delivered",
}


@dataclass(frozen=True, slots=True)
class AlertRow:
    id: str
    name: str
    place: str
    metric: str
    word: str
    tone: str
    value: str
    threshold: str
    words: str
    next_step: str
    since: datetime
    over_at: datetime | None
    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    silenced_until: datetime | None
    is_firing: bool
    is_of_operators: bool


@dataclass(frozen=True, slots=True)
class EventRow:
    what: str
    at: datetime
    by: str
    words: str


def alert_row(seen: Mapping[str, Any], *, by_operator: bool, now: datetime) -> AlertRow:
    is_firing = seen["state"] == "firing"
    silenced = seen["silenced_until"] if seen["silenced_until"] and seen["silenced_until"] > now else None
    told = seen["acknowledged"]
    word, tone = _state(seen, is_firing, silenced)
    return AlertRow(
        id=str(seen["id"]),
        name=seen["rule"],
        place=seen["place"],
        metric=NAMES.get(seen["metric"], seen["metric"]),
        word=word,
        tone=tone,
        value=value_words(seen["unit"], seen["value"]) if seen["has_data"] else "no data now",
        threshold=f"{seen['comparison']} {value_words(seen['unit'], seen['threshold'])}",
        words=seen["words"],
        next_step=seen["next_step"].replace("`", ""),
        since=seen["since"],
        over_at=seen["resolved_at"],
        acknowledged_by=told["by"] if told else "",
        acknowledged_at=told["at"] if told else None,
        note=told["note"] if told else "",
        silenced_until=silenced,
        is_firing=is_firing,
        is_of_operators=by_operator,
    )


def _state(seen: Mapping[str, Any], is_firing: bool, silenced: datetime | None) -> tuple[str, str]:
    """What it asks of whoever looks, in a word."""
    if not is_firing:
        return "over", "ok"
    if silenced:
        return "silenced", "info"
    if seen["acknowledged"]:
        return "acknowledged", "info"
    built_in = BUILT_IN_BY_KEY.get(seen["built_in"] or "")
    return ("cannot wait", "bad") if built_in and built_in.severity == "page" else ("fires", "warn")


def event_row(seen: Mapping[str, Any], unit: Any) -> EventRow:
    value = "" if seen["value"] is None else f"at {value_words(unit, seen['value'])}"
    words = " · ".join(part for part in (value, seen["words"] or "") if part)
    return EventRow(EVENTS.get(seen["what"], seen["what"]), seen["at"], seen["by"] or "Luminet", words)


def headline(counts: Mapping[str, int]) -> str:
    firing = counts["firing"]
    if not firing:
        return "Nothing fires"
    fires = f"{counted(firing, 'alert')} {'fires' if firing == 1 else 'fire'}"
    urgent, unattended = counts["urgent"], counts["unattended"]
    if urgent:
        return f"{fires}: {urgent} cannot wait and {'has' if urgent == 1 else 'have'} nobody"
    if unattended:
        return f"{fires}: nobody looks after {'it' if firing == 1 else unattended if unattended < firing else 'them'}"
    return f"{fires}: somebody looks after {'it' if firing == 1 else 'each of them'}"


def is_late(evaluated_at: datetime | None, now: datetime) -> bool:
    return evaluated_at is not None and now - evaluated_at > EVALUATED_WITHIN


@dataclass(frozen=True, slots=True)
class RuleRow:
    id: str
    name: str
    place: str
    metric: str
    condition: str
    clears: str
    is_built_in: bool
    is_on: bool
    webhook: str
    by: str
    at: datetime
    more: str


def rule_row(seen: Mapping[str, Any]) -> RuleRow:
    unit = seen["unit"]
    least = f"only with {seen['least_prompt_tokens']:,} prompt tokens in 15 min" if seen["least_prompt_tokens"] else ""
    return RuleRow(
        id=str(seen["id"]),
        name=seen["name"],
        place=seen["place"],
        metric=NAMES.get(seen["metric"], seen["metric"]),
        condition=condition(seen["metric"], seen["comparison"], seen["threshold"], seen["for_seconds"]),
        clears=f"over at {value_words(unit, seen['clears_at'])}"
        + (f" for {duration(seen['clear_for_seconds'])}" if seen["clear_for_seconds"] else ""),
        is_built_in=seen["built_in"] is not None,
        is_on=seen["enabled"],
        webhook=seen["webhook_url"] or "",
        by=seen["created_by"],
        at=seen["created_at"],
        more=least,
    )


def condition(metric: str, comparison: Comparison, threshold: float, seconds: int) -> str:
    """When it fires: "below 50.0 % for 15 min"."""
    return condition_words(metric, comparison, threshold, seconds).removeprefix("the rule is ")


def rules_headline(rules: Sequence[RuleRow], total: int) -> str:
    if not total:
        return "There is no rule yet"
    off = sum(not one.is_on for one in rules)
    what = f"{counted(total, 'rule')} {'says' if total == 1 else 'say'} what is an alert"
    return f"{what}; {off} of those here {'is' if off == 1 else 'are'} off" if off else what


@dataclass(frozen=True, slots=True)
class MetricRow:
    name: str
    label: str
    unit: str
    subject: str
    about: str


def metric_rows(*, is_operator: bool) -> list[MetricRow]:
    """What there can be rules about."""
    return [
        MetricRow(
            one.name, NAMES.get(one.name, one.name), unit_words(one.unit), one.subject, one.about.replace("`", "")
        )
        for one in METRICS.values()
        if is_operator or one.is_for_customers
    ]


def unit_words(unit: str) -> str:
    return {"share": "%", "seconds": "seconds", "times": "times the mean", "count": "a number"}.get(unit, unit)
