"""Wording of alerts and rules: what fires, by how much, since when, and who acknowledged it. Pure.

Everything about an alert comes from controlplane.alerts.views.alert_shown, which omits what this reader may not see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from controlplane.alerts.definitions import BUILT_IN_BY_KEY, METRICS, Metric, value_words
from controlplane.dashboard.frame.states import Tag
from controlplane.dashboard.frame.words import counted

EVALUATED_WITHIN: Final = timedelta(minutes=2)  # if the last evaluation is older, the firing alerts may be out of date
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
    """One alert. `view` is from alerts.views.alert_shown for this reader."""

    view: Mapping[str, Any]
    is_of_operators: bool
    now: datetime

    @property
    def is_firing(self) -> bool:
        return bool(self.view["state"] == "firing")

    @property
    def silenced_until(self) -> datetime | None:
        until: datetime | None = self.view["silenced_until"]
        return until if until and until > self.now else None

    @property
    def state(self) -> Tag:
        """Return how urgent the alert is, as one word."""
        if not self.is_firing:
            return Tag("over", "ok")
        if self.silenced_until:
            return Tag("silenced", "info")
        if self.view["acknowledged"]:
            return Tag("acknowledged", "info")
        built_in = BUILT_IN_BY_KEY.get(self.view["built_in"] or "")
        is_urgent = built_in is not None and built_in.severity == "page"
        return Tag("cannot wait", "bad") if is_urgent else Tag("fires", "warn")


def event_words(event: Mapping[str, Any], unit: Any) -> tuple[str, str]:
    """Return what happened, and its details."""
    value = "" if event["value"] is None else f"at {value_words(unit, event['value'])}"
    return EVENTS.get(event["what"], event["what"]), " · ".join(filter(None, (value, event["words"])))


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


def rules_headline(rules: Sequence[Mapping[str, Any]], total: int) -> str:
    if not total:
        return "There is no rule yet"
    off = sum(not rule["enabled"] for rule in rules)
    rules_text = f"{counted(total, 'rule')} {'says' if total == 1 else 'say'} what is an alert"
    return f"{rules_text}; {off} of those here {'is' if off == 1 else 'are'} off" if off else rules_text


def metrics_known(*, is_operator: bool) -> list[tuple[Metric, str, str]]:
    """Return the metrics that this reader's rules may use, each with label and unit."""
    metrics = [metric for metric in METRICS.values() if is_operator or metric.is_for_customers]
    return [(metric, metric_name(metric.name), unit_words(metric.unit)) for metric in metrics]


def metric_name(metric: str) -> str:
    return NAMES.get(metric, metric)


def unit_words(unit: str) -> str:
    return {"share": "%", "seconds": "seconds", "times": "times the mean", "count": "a number"}.get(unit, unit)
