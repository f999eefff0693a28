"""Forecasts what another TTL or limit would do to a namespace: hit ratio, memory and money, beside measured values.

Engines provide the forecast (foretelling.py); daily traffic and measured values are counted as everywhere else. The
error is the larger of two: the error of interpolating and estimating the engines' curves, and the difference between
forecast and measurement for the policy in force.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import Q

from controlplane.analytics.foretelling import Asked, Curves, Foretold, curves_read, foretold, ttls_of
from controlplane.analytics.models import ReuseCurve
from controlplane.analytics.money import Price, saved_money
from controlplane.analytics.prices import prices_now
from controlplane.analytics.selectors import database_now, first_minute, totals_by
from controlplane.analytics.stats import covered_seconds
from controlplane.analytics.sums import Scope
from controlplane.analytics.windows import Window, window_of
from controlplane.fleet.models import Agent
from tenants.consistent_reads import consistent_read
from tenants.levels import Place
from tenants.models import Namespace
from tenants.selectors import policy_in_force

LEAST_TOKENS: Final = 10_000  # prompt tokens that a forecast needs
LEAST_SECONDS: Final = 300
CURVES_LAST: Final = timedelta(hours=24)  # older curves say nothing about now
SILENT_FOR: Final = timedelta(minutes=10)  # longer than any restart: an agent silent for longer has been replaced
DAY_SECONDS: Final = 86_400
NOTHING_FORETOLD: Final[dict[str, Any]] = {"now": None, "then": None, "curve": []}


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of the last 24 hours, as far as they are covered."""

    covered_seconds: int
    prompt_tokens: int
    cached_tokens: int
    by_model: Mapping[str, int]  # prompt tokens

    @property
    def measured(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def a_day(self, amount: float) -> float:
        """Return the amount, scaled to a whole day."""
        return amount * DAY_SECONDS / max(self.covered_seconds, 1)


@dataclass(frozen=True, slots=True)
class Ground:
    """All inputs of an answer, read at one moment."""

    at: datetime
    in_force: Asked
    is_caching: bool
    curves: Sequence[Curves]
    told_at: datetime | None  # the oldest of the curves
    traffic: Traffic
    prices: Sequence[Price]


def what_if(
    namespace: Namespace,
    *,
    ttl_seconds: int | None = None,
    ttl_mode: str | None = None,
    limit_share: float | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return the forecast. Omitted values stay as in force. `now` and `then` are null if there is too little data."""
    inputs = _ground(namespace, now)
    requested = {"ttl_seconds": ttl_seconds, "ttl_mode": ttl_mode, "limit_share": limit_share}
    changes: dict[str, Any] = {name: value for name, value in requested.items() if value is not None}
    tokens = sum(engine_curves.prompt_tokens for engine_curves in inputs.curves)
    reason = too_little(tokens, inputs.traffic)
    return {
        "is_enough": reason is None,
        "why": reason,
        "as_of": inputs.told_at,
        "agents": len(inputs.curves),
        "prompt_tokens": tokens,
        "covered_seconds": inputs.traffic.covered_seconds,
        "measured_hit_ratio": inputs.traffic.measured,
        **(NOTHING_FORETOLD if reason else _foretold(inputs, replace(inputs.in_force, **changes))),
    }


def _ground(namespace: Namespace, now: datetime | None) -> Ground:
    with consistent_read():
        moment = now or database_now()
        values = policy_in_force(Place(namespace.organisation, namespace)).effective.values
        rows = curves_told([namespace.pk], moment)
        return Ground(
            at=moment,
            in_force=Asked(values["ttl_seconds"], values["ttl_mode"], values["limit_share"]),
            is_caching=values["prefix_caching"],
            curves=[engine_curves for row in rows if (engine_curves := curves_read(row.told)) is not None],
            told_at=min((row.at for row in rows), default=None),
            traffic=_traffic(namespace, window_of("24h", moment)),
            prices=prices_now(),
        )


def curves_told(namespaces: Collection[int], moment: datetime) -> list[ReuseCurve]:
    """Return the curves of agents that are still there. Traffic that moved to another agent would count twice."""
    gone_agents = Agent.objects.filter(Q(revoked_at__isnull=False) | Q(last_seen_at__lt=moment - SILENT_FOR))
    curves = ReuseCurve.objects.filter(namespace_id__in=namespaces, at__gte=moment - CURVES_LAST)
    return list(curves.exclude(agent__in=gone_agents.values("pk")))


def _foretold(inputs: Ground, policy: Asked) -> dict[str, Any]:
    current = _of(inputs, inputs.in_force) if inputs.is_caching else Foretold(0.0, 0.0, 0)
    measured = inputs.traffic.measured
    measured_error = 0.0 if measured is None else abs(current.hit_ratio - measured)
    return {
        "now": _shown(inputs, inputs.in_force, current, measured_error),
        "then": _shown(inputs, policy, _of(inputs, policy), measured_error),
        "curve": [_point(inputs, replace(policy, ttl_seconds=ttl)) for ttl in ttls_of(inputs.curves)],
    }


def _of(inputs: Ground, policy: Asked) -> Foretold:
    forecast = foretold(inputs.curves, policy)
    assert forecast is not None, "there is traffic enough"
    return forecast


def _shown(inputs: Ground, policy: Asked, forecast: Foretold, measured_error: float) -> dict[str, Any]:
    """Return a forecast for display. `measured_error`: its known error for the policy in force."""
    daily_factor, day = inputs.traffic.a_day(forecast.hit_ratio), inputs.at.astimezone(UTC).date()
    hits = {(day, model): round(tokens * daily_factor) for model, tokens in inputs.traffic.by_model.items()}
    return {
        "ttl_seconds": policy.ttl_seconds,
        "ttl_mode": policy.ttl_mode,
        "limit_share": policy.limit_share,
        "hit_ratio": round(forecast.hit_ratio, 6),
        "hit_ratio_error": round(min(1.0, max(forecast.error, measured_error)), 6),
        "resident_bytes": forecast.resident_bytes,
        "hit_tokens_per_day": sum(hits.values()),
        "saved_money_per_day": saved_money(hits, inputs.prices),
    }


def _point(inputs: Ground, policy: Asked) -> dict[str, Any]:
    """Return a point of the curve over TTLs, for the requested mode and limit."""
    forecast = _of(inputs, policy)
    return {
        "ttl_seconds": round(policy.ttl_seconds),
        "hit_ratio": round(forecast.hit_ratio, 6),
        "resident_bytes": forecast.resident_bytes,
    }


def too_little(prompt_tokens: int, traffic: Traffic) -> str | None:
    """Return in one sentence why there is no forecast yet; None if there is enough data."""
    if prompt_tokens < LEAST_TOKENS:
        return f"{prompt_tokens:,} prompt tokens were seen; {LEAST_TOKENS:,} are the least that anything is foretold of"
    if traffic.covered_seconds < LEAST_SECONDS:
        return f"{traffic.covered_seconds} s are covered; {LEAST_SECONDS} s are the least that anything is foretold of"
    return None


def _traffic(namespace: Namespace, window: Window) -> Traffic:
    scope = Scope(namespace.organisation_id, namespace.pk)
    models = totals_by(scope, window, by="model")
    counts = list(models.values())
    return Traffic(
        covered_seconds(window, first_minute(scope, now=window.end)),
        sum(model_counts["prompt_tokens"] for model_counts in counts),
        sum(model_counts["cached_tokens"] for model_counts in counts),
        {
            model: model_counts["prompt_tokens"]
            for model, model_counts in models.items()
            if model_counts["prompt_tokens"]
        },
    )
