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
    found: dict[int, list[Curves]] = {}
    for row in curves_told(namespaces, moment):
        read = curves_read(row.told)
        if read is not None:
            found.setdefault(row.namespace_id, []).append(read)
    return found


def hindsight(known: Known, before: Mapping[int, Values], after: Mapping[int, Values]) -> Hindsight | None:
    """Return the forecast for the namespaces in which FIELDS change; None if their traffic is too little."""
    old = new = error = 0.0
    tokens = 0
    for namespace, curves in known.items():
        was, then = before[namespace], after[namespace]
        if all(was[field] == then[field] for field in FIELDS):
            continue
        seen = sum(one.prompt_tokens for one in curves)
        one, other = _of(curves, was), _of(curves, then)
        old += seen * one.hit_ratio
        new += seen * other.hit_ratio
        error += seen * max(one.error, other.error)
        tokens += seen
    if tokens < LEAST_TOKENS:
        return None
    return Hindsight(old / tokens, new / tokens, error / tokens)


def _of(curves: Sequence[Curves], values: Values) -> Foretold:
    if not values["prefix_caching"]:
        return Foretold(0.0, 0.0, 0)
    asked = Asked(values["ttl_seconds"], values["ttl_mode"], values["limit_share"])
    return foretold(curves, asked) or Foretold(0.0, 0.0, 0)
