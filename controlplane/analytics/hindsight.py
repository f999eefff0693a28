"""What a change of policy does to a hit rate by the reuse that engines know of: of revisions already published.

The same ground as what-if's (whatif.py), for many namespaces at once. Only times to live and limits are foretold.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controlplane.analytics.foretelling import Asked, Curves, Foretold, curves_read, foretold
from controlplane.analytics.whatif import LEAST_TOKENS, curves_told

FIELDS: Final = frozenset({"ttl_seconds", "ttl_mode", "limit_share", "prefix_caching"})
Values = Mapping[str, Any]  # in force
Known = Mapping[int, Sequence[Curves]]  # by namespace


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Hit ratios of all namespaces it is in force in, each by its traffic."""

    before: float
    after: float
    error: float


def curves_known(namespaces: Collection[int], moment: datetime) -> dict[int, list[Curves]]:
    """What engines last told of each: one question for all of them."""
    found: dict[int, list[Curves]] = {}
    for row in curves_told(namespaces, moment):
        read = curves_read(row.told)
        if read is not None:
            found.setdefault(row.namespace_id, []).append(read)
    return found


def hindsight(known: Known, before: Mapping[int, Values], after: Mapping[int, Values]) -> Hindsight | None:
    """Of the namespaces in which it changed something that can be foretold; None where that is too little traffic."""
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
