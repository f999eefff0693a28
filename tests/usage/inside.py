"""Called inside a fleet's own database (tests/bench/inside.py): what its worker does in its own time, done now."""

import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.test import Client
from django.utils import timezone

from controlplane.analytics.ingest import usage_store
from engine_agent.contracts.wire import Report
from tenants.models import User
from tests.usage.agents import Whose, minute_of, row_of, rows_by_chance

ROWS_OF_A_REPORT, REPORTS_AT_ONCE, TRANSACTIONS = 500, 4, 10


def old_rows_store(organisation: str, namespace: str, minute: int, rows: int) -> None:
    """As ingest stored them when they came, in so many minutes from this one on."""
    from engine_agent.contracts.usage import row_document

    whose, at = Whose(organisation, namespace), datetime.fromtimestamp(minute, UTC)
    told = [row_document(row_of(whose, at=minute + 60 * place)) for place in range(rows)]
    report = Report("usage", {"boot": "old", "upto": rows, "rows": told, "totals": {}, "lost": 0})
    with transaction.atomic():
        refused = usage_store({"long-ago": [(1, report)]}, at + timedelta(hours=1))
    assert not any(refused.values()), refused


def operator_session() -> dict[str, str]:
    """The cookie of an operator who has just signed in."""
    client = Client()
    client.force_login(User.objects.get(is_operator=True))
    name: str = settings.SESSION_COOKIE_NAME
    return {name: client.cookies[name].value}


def roll() -> None:
    from controlplane.analytics.rolling import roll as rolled

    rolled(timezone.now())


def rolled_day(at: int) -> bool:
    """Whether all of that day is rolled, after one more run."""
    from controlplane.analytics.retention import is_day_rolled

    roll()
    return is_day_rolled(datetime.fromtimestamp(at, UTC).date())


def differences() -> list[str]:
    """All that the reconciliation finds now."""
    from controlplane.analytics.reconciling import reconcile

    return [f"{one.between}: {one.place}: {one.sides}" for one in reconcile(timezone.now())]


def audit_is_sound() -> bool:
    from tenants.audit import audit_verify

    return audit_verify().problem is None


def audit_anchor() -> None:
    from controlplane.alerts.anchoring import anchor_take

    anchor_take(timezone.now())


def roll_and_retain() -> None:
    from controlplane.analytics.retention import retain

    roll()
    retain(timezone.now())


def ingest_rates(tenants: Sequence[Sequence[str]], repetitions: int) -> list[float]:
    """Rows a second, through nothing but the ingest and PostgreSQL."""
    numbers = iter(range(1, 1_000_000))
    whose = [Whose(*one) for one in tenants]
    return [_rate(whose, numbers, seed) for seed in range(repetitions + 1)][1:]


def _rate(whose: Sequence[Whose], numbers: Iterator[int], seed: int) -> float:
    some = [_reports(whose, numbers, f"{seed} {number}") for number in range(TRANSACTIONS)]
    began = time.perf_counter()
    for reports in some:
        with transaction.atomic():
            usage_store({"bare": reports}, timezone.now())
    return TRANSACTIONS * REPORTS_AT_ONCE * ROWS_OF_A_REPORT / (time.perf_counter() - began)


def _reports(whose: Sequence[Whose], numbers: Iterator[int], seed: str) -> list[tuple[int, Report]]:
    from engine_agent.contracts.usage import row_document

    chance, now = random.Random(seed), minute_of(time.time())
    minutes = range(now - 29 * 60, now + 1, 60)
    found = []
    for _ in range(REPORTS_AT_ONCE):
        rows = [row_document(one) for one in rows_by_chance(chance, whose, ROWS_OF_A_REPORT, minutes=minutes)]
        found.append((next(numbers), Report("usage", {"boot": "b", "upto": 1, "rows": rows, "totals": {}, "lost": 0})))
    return found
