"""Forecasts how published revisions change hit ratios, from the reuse that engines report.

Uses the same data as what-if (whatif.py), for many namespaces at once. Only changes of FIELDS have a forecast.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controlplane.analytics.foretelling import Asked, Curves, Foretold, curves_read, foretold
from controlplane.analytics.whatif import LEAST_TOKENS, curves_told

FIELDS: Final = frozenset({"ttl_seconds", "ttl_mode", "limit_share", "prefix_caching"})
Values = Mapping[str, Any]  # of the policy in force
Known = Mapping[int, Sequence[Curves]]  # by namespace


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Forecast hit ratios before and after a change, over the namespaces it affects, weighted by traffic."""

    before: float
    after: float
    error: float


def curves_known(namespaces: Collection[int], moment: datetime) -> dict[int, list[Curves]]:
    """Return the newest curves of each namespace, in one query."""
    curves_by_namespace: dict[int, list[Curves]] = {}
    for row in curves_told(namespaces, moment):
        curves = curves_read(row.told)
        if curves is not None:
            curves_by_namespace.setdefault(row.namespace_id, []).append(curves)
    return curves_by_namespace


def hindsight(known: Known, before: Mapping[int, Values], after: Mapping[int, Values]) -> Hindsight | None:
    """Return the forecast for the namespaces in which FIELDS change; None if their traffic is too little."""
    old = new = error = 0.0
    tokens = 0
    for namespace, curves in known.items():
        old_policy, new_policy = before[namespace], after[namespace]
        if all(old_policy[field] == new_policy[field] for field in FIELDS):
            continue
        prompt_tokens = sum(engine_curves.prompt_tokens for engine_curves in curves)
        forecast_before, forecast_after = _of(curves, old_policy), _of(curves, new_policy)
        old += prompt_tokens * forecast_before.hit_ratio
        new += prompt_tokens * forecast_after.hit_ratio
        error += prompt_tokens * max(forecast_before.error, forecast_after.error)
        tokens += prompt_tokens
    if tokens < LEAST_TOKENS:
        return None
    return Hindsight(old / tokens, new / tokens, error / tokens)


def _of(curves: Sequence[Curves], values: Values) -> Foretold:
    if not values["prefix_caching"]:
        return Foretold(0.0, 0.0, 0)
    policy = Asked(values["ttl_seconds"], values["ttl_mode"], values["limit_share"])
    return foretold(curves, policy) or Foretold(0.0, 0.0, 0)
