"""The effect of each published revision: a forecast stored soon after publication, and a measurement later.

A task makes the forecast within seconds of the commit, from the reuse that engines have reported by then. Publishing
waits for nothing, and revisions published while no worker ran are caught up with. A stored forecast never changes,
whatever engines report later. The measurement compares a day before with a day after, and is repeated until that day is
over.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Exists, F, OuterRef, Q

from controlplane.analytics.hindsight import FIELDS, Hindsight, Known, curves_known, hindsight
from controlplane.analytics.models import PredictedEffect
from controlplane.analytics.selectors import totals_counts
from controlplane.analytics.sums import Scope
from controlplane.analytics.windows import Window, floored
from controlplane.database.locks import alone
from tenants.levels import FLEET, Place, level_of, namespaces_below, place_of
from tenants.models import PolicyLevel, PolicyRevision
from tenants.policy import Below, Values, effective_values

PREDICTING_LOCK: Final = 7_446_220_475  # a number that no other lock uses
MEASURING_LOCK: Final = 7_446_220_476
EVERYBODY: Final = 0  # in place of an organisation's id: all affected organisations together
CAUGHT_UP: Final = timedelta(days=1)  # for older revisions, today's reuse would give another forecast
MEASURED_FOR: Final = timedelta(days=1)
MEASURED_EVERY: Final = timedelta(minutes=5)
AT_ONCE: Final = 200
MINUTE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Effect:
    """A revision's effect. `foretold` and both measured ratios are None if there was too little traffic."""

    foretold: Hindsight | None
    measured_before: float | None
    measured_after: float | None


def effects_of(revisions: Collection[int], organisation: int = EVERYBODY) -> dict[int, Effect]:
    """Return the effects of the revisions processed so far, also of those without a forecast."""
    rows = PredictedEffect.objects.filter(revision_id__in=revisions, organisation_id__in=(EVERYBODY, organisation))
    effects: dict[int, Effect] = {}
    for row in rows.order_by("organisation_id"):  # EVERYBODY first: its row shows that the revision was processed
        if row.organisation_id == organisation:
            effects[row.revision_id] = _read(row)
        else:
            effects.setdefault(row.revision_id, Effect(None, None, None))
    return effects


def _read(row: PredictedEffect) -> Effect:
    has_forecast = row.before is not None and row.after is not None and row.error is not None
    forecast = Hindsight(row.before or 0.0, row.after or 0.0, row.error or 0.0) if has_forecast else None
    return Effect(forecast, row.measured_before, row.measured_after)


# Forecasts


def effects_predict(now: datetime) -> int:
    """Store the forecasts of new revisions, and return how many revisions were processed."""
    with alone(PREDICTING_LOCK) as is_alone:
        due = _due(now) if is_alone else []
        for revision in due:
            _predict(revision, now)
        return len(due)


def _due(now: datetime) -> list[PolicyRevision]:
    is_known = PredictedEffect.objects.filter(organisation_id=EVERYBODY, revision_id=OuterRef("pk"))
    due = PolicyRevision.objects.filter(~Exists(is_known), at__gte=now - CAUGHT_UP)
    owners = ("level__organisation", "level__namespace__organisation")
    return list(due.select_related(*owners).order_by("pk")[:AT_ONCE])


def _predict(revision: PolicyRevision, now: datetime) -> None:
    forecasts = dict(_foretold(revision, now))
    rows = [_row(revision, organisation, now) for organisation in {EVERYBODY, *forecasts}]
    for row in rows:
        forecast = forecasts.get(row.organisation_id)
        if forecast is not None:
            row.before, row.after, row.error = forecast.before, forecast.after, forecast.error
    PredictedEffect.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def _row(revision: PolicyRevision, organisation: int, now: datetime) -> PredictedEffect:
    return PredictedEffect(revision_id=revision.pk, organisation_id=organisation, published_at=revision.at, at=now)


def _foretold(revision: PolicyRevision, now: datetime) -> Iterator[tuple[int, Hindsight]]:
    """Yield the forecast for each organisation that the revision applies to, and for all of them together."""
    previous_revision = PolicyRevision.objects.filter(level=revision.level_id, number=revision.number - 1).first()
    old_policy: Values = {} if previous_revision is None else previous_revision.policy
    if all(old_policy.get(field) == revision.policy.get(field) for field in FIELDS):
        return
    namespaces = list(namespaces_below(place_of(revision.level)))
    curves_by_namespace = curves_known([namespace.namespace_id for namespace in namespaces], now)
    affected = [namespace for namespace in namespaces if namespace.namespace_id in curves_by_namespace]
    fleet = level_of(FLEET).policy
    old_policies = {namespace.namespace_id: _in_force(revision, namespace, fleet, old_policy) for namespace in affected}
    new_policies = {
        namespace.namespace_id: _in_force(revision, namespace, fleet, revision.policy) for namespace in affected
    }
    for organisation, organisation_curves in _by_organisation(affected, curves_by_namespace).items():
        forecast = hindsight(organisation_curves, old_policies, new_policies)
        if forecast is not None:
            yield organisation, forecast


def _by_organisation(affected: Sequence[Below], curves: Known) -> dict[int, Known]:
    by_organisation: dict[int, dict[int, Any]] = {EVERYBODY: {}}
    for namespace in affected:
        for organisation in (EVERYBODY, namespace.organisation_id):
            by_organisation.setdefault(organisation, {})[namespace.namespace_id] = curves[namespace.namespace_id]
    return {organisation: part for organisation, part in by_organisation.items() if part}


def _in_force(revision: PolicyRevision, namespace: Below, fleet: Values, policy: Values) -> Mapping[str, Any]:
    """Return the effective policy of that namespace, if the revision's level had this `policy`."""
    chain = {
        PolicyLevel.Kind.FLEET: (policy, namespace.organisation_policy, namespace.namespace_policy),
        PolicyLevel.Kind.ORGANISATION: (fleet, policy, namespace.namespace_policy),
        PolicyLevel.Kind.NAMESPACE: (fleet, namespace.organisation_policy, policy),
    }
    return effective_values(chain[PolicyLevel.Kind(revision.level.kind)])


# Measurements


def effects_measure(now: datetime) -> int:
    """Measure what is due and return how many. Only revisions with a forecast: an unchanged policy has no effect."""
    with alone(MEASURING_LOCK) as is_alone:
        return _measured(now) if is_alone else 0


def _measured(now: datetime) -> int:
    """Measure in order of the last measurement, oldest first, so that none waits because others are due again."""
    is_due = Q(measured_at=None) | Q(
        measured_at__lt=now - MEASURED_EVERY, published_at__gt=F("measured_at") - MEASURED_FOR
    )
    due = list(
        PredictedEffect.objects.filter(is_due, before__isnull=False).order_by(
            F("measured_at").asc(nulls_first=True), "pk"
        )[:AT_ONCE]
    )
    owners = PolicyRevision.objects.select_related("level__organisation", "level__namespace__organisation")
    revisions = owners.in_bulk([row.revision_id for row in due])
    for row in due:
        revision = revisions.get(row.revision_id)
        if revision is not None:
            _measure(row, place_of(revision.level), now)
        row.measured_at = now
    PredictedEffect.objects.bulk_update(due, ["measured_before", "measured_after", "measured_at"], batch_size=500)
    return len(due)


def _measure(row: PredictedEffect, level: Place, now: datetime) -> None:
    """Measure in whole minutes. The minute of publication belongs to neither side."""
    organisation = level.organisation.pk if level.organisation is not None else row.organisation_id or None
    scope = Scope(organisation, None if level.namespace is None else level.namespace.pk)
    minute = timedelta(minutes=1)
    end = floored(row.published_at, MINUTE_SECONDS)
    until = floored(min(now, row.published_at + MEASURED_FOR), MINUTE_SECONDS)
    row.measured_before = _hit_ratio(scope, end - MEASURED_FOR, end)
    row.measured_after = _hit_ratio(scope, end + minute, until) if until > end + minute else None


def _hit_ratio(scope: Scope, start: datetime, end: datetime) -> float | None:
    counts = totals_counts(
        scope, Window("effect", start, end, is_open=False), columns=("prompt_tokens", "cached_tokens")
    )
    return counts["cached_tokens"] / counts["prompt_tokens"] if counts["prompt_tokens"] else None
