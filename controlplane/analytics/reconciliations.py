"""The newest result of the reconciliation, in one row, for the API, the alerts and the metrics."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from django.db import DatabaseError
from django.db.models import Q

from controlplane.analytics.models import Reconciliation
from controlplane.analytics.reconciling import BETWEEN, Counted, Difference, Found, Refused, reconciled
from controlplane.common.metrics import reconciliation_differences

THE_RESULT: Final = 1
MOST_KEPT: Final = 200  # differences; all are in the totals
SET_BACK: Final = timedelta(minutes=10)  # a result this far ahead is from before the clock was set back, and not newer
REST: Final = 10  # the pause after a comparison, as a multiple of its duration


class ToldDifference(TypedDict):
    """A difference as JSON. `sides` are {engine, ledger} for `engine and ledger`, and so on.

    `difference`: the first side minus the second. `is_explained`: refused rows add up to exactly that.
    """

    between: str
    place: str
    agent: str | None
    namespace: str | None
    namespace_id: int
    boot: str | None
    day: str | None
    level: int | None
    start: str | None
    sides: Mapping[str, Mapping[str, int]]
    difference: Mapping[str, int]
    refused: Mapping[str, Any] | None
    is_explained: bool
    tokens: int


def reconciliation_run(*, now: datetime) -> bool:
    """Compare and store the result. Return False if the pause after the last comparison is not over."""
    newest = reconciliation_newest()
    if newest is not None and newest.at <= now < newest.at + timedelta(seconds=REST * newest.took_seconds):
        return False
    began = time.perf_counter()
    comparison = reconciled(now)
    reconciliation_keep(comparison, took_seconds=time.perf_counter() - began)
    return True


def reconciliation_keep(comparison: Found, *, took_seconds: float) -> None:
    """Store the result, unless a newer one is already there."""
    values = {
        "at": comparison.at,
        "took_seconds": round(took_seconds, 3),
        "compared": dict(comparison.compared),
        "differences": [told(difference) for difference in comparison.differences[:MOST_KEPT]],
        "totals": _totals(comparison),
    }
    new_row, stored_rows = Reconciliation(pk=THE_RESULT, **values), Reconciliation.objects.filter(pk=THE_RESULT)
    is_older = Q(at__lte=comparison.at) | Q(at__gt=comparison.at + SET_BACK)
    if stored_rows.filter(is_older).update(**values) == 0:
        Reconciliation.objects.bulk_create([new_row], ignore_conflicts=True)


def reconciliation_newest() -> Reconciliation | None:
    return Reconciliation.objects.filter(pk=THE_RESULT).first()


def differences_now() -> list[ToldDifference]:
    """Return the differences of the newest comparison, largest first; empty before the first comparison."""
    newest = reconciliation_newest()
    return [] if newest is None else list(newest.differences)


def differences_measure() -> None:
    """Update the metrics of this process. If the database does not answer, they stay as they are."""
    try:
        newest = reconciliation_newest()
    except DatabaseError:
        return
    for between in BETWEEN:
        tokens = 0 if newest is None else newest.totals.get(between, {}).get("tokens", 0)
        reconciliation_differences.labels(between).set(tokens)


def told(difference: Difference) -> ToldDifference:
    first, _, second = difference.between.partition(" and ")
    return {
        "between": difference.between,
        "place": difference.place,
        "agent": difference.agent,
        "namespace": difference.namespace or None,
        "namespace_id": difference.namespace_id,
        "boot": difference.boot,
        "day": None if difference.day is None else str(difference.day),
        "level": difference.level,
        "start": None if difference.start is None else difference.start.isoformat(),
        "sides": {first: asdict(difference.sides[0]), second: asdict(difference.sides[1])},
        "difference": asdict(difference.difference),
        "refused": None if difference.refused is None else _refused(difference.refused),
        "is_explained": difference.is_explained,
        "tokens": difference.tokens,
    }


def _refused(refused: Refused) -> dict[str, Any]:
    return {"rows": refused.rows, **asdict(refused.told), "why": list(refused.why)}


def _totals(comparison: Found) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {}
    for between in comparison.compared:
        differences = [difference for difference in comparison.differences if difference.between == between]
        total = sum((_absolute(difference.difference) for difference in differences), Counted())
        totals[between] = {
            "differences": len(differences),
            "tokens": sum(difference.tokens for difference in differences),
            **asdict(total),
        }
    return totals


def _absolute(counted: Counted) -> Counted:
    return Counted(abs(counted.requests), abs(counted.prompt_tokens), abs(counted.cached_tokens))
