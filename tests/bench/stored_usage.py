"""A day of usage as it is stored: every namespace on every agent in every minute, rolled up as far as it would be.

For the database of a stack: tests/bench/inside.py calls `fill` there, then `measure`.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection
from django.utils import timezone

from controlplane.analytics.columns import CUSTOMER_KIND
from controlplane.analytics.partitions import partitions_ensure
from controlplane.analytics.rolling import roll
from controlplane.analytics.selectors import Scope, totals
from controlplane.analytics.series import SeriesKey, series_ensure
from controlplane.analytics.stats import live_message, series_answer, stats_answer
from controlplane.analytics.windows import window_of
from tenants.actor import SYSTEM
from tenants.models import Namespace, Organisation
from tenants.services.namespaces import namespaces_create
from tenants.services.organisations import organisation_create

DAY_MINUTES: Final = 1_440
OF_ONE: Final = 10  # namespaces of an organisation
WARM: Final = 5
# Eight times of four classes of prompts each row, in one of forty buckets.
ROWS: Final = """
INSERT INTO analytics_minute (series_id, minute, requests, prompt_tokens, cached_tokens, generated_tokens, times)
SELECT series.id, minute, 4, 4096, 1024 + series.id %% 2048, 512, ARRAY(
    SELECT (((1 + place) * 512 + (minute_number * 7 + series.id * 13 + place * 5) %% 40 + 100)::bigint << 32) | 1
    FROM generate_series(0, 7) AS place
)
FROM generate_series(%(first)s::timestamptz, %(last)s::timestamptz, interval '1 minute') WITH ORDINALITY
    AS told(minute, minute_number)
CROSS JOIN analytics_series AS series
WHERE series.agent <> ''
ORDER BY minute, series.id
"""


def unlucky_now() -> datetime:
    """Just before an hour is over: as little of it is rolled up as ever."""
    return timezone.now().astimezone(UTC).replace(minute=59, second=30, microsecond=0) - timedelta(hours=1)


def fill(namespaces: int, agents: int) -> dict[str, Any]:
    began = time.perf_counter()
    now = unlucky_now()
    made = _namespaces(namespaces)
    series_ensure(
        [
            SeriesKey(one.pk, f"agent-{number}", "m", "bf16", CUSTOMER_KIND, one.organisation_id)
            for one in made
            for number in range(agents)
        ]
    )
    filled = _rows(now)
    while roll(now, seconds=60):
        pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE analytics_minute, analytics_piece, analytics_series, analytics_rolled")
    return {"seconds": time.perf_counter() - began, "rows": filled, "now": now.isoformat()}


def _namespaces(count: int) -> list[Namespace]:
    for number in range(count // OF_ONE):
        organisation = organisation_create(actor=SYSTEM, slug=f"usage-{number:04}", name="Usage")
        wanted = [(f"ns-{place}", "", None) for place in range(OF_ONE - 1)]  # and the default one
        namespaces_create(actor=SYSTEM, organisation=organisation, wanted=wanted)
    return list(Namespace.objects.filter(organisation__slug__startswith="usage-"))


def _rows(now: datetime) -> int:
    """Hour by hour, in the order in which they would have come."""
    first = now.replace(second=0) - timedelta(minutes=DAY_MINUTES)
    partitions_ensure([first.date(), now.date()])
    added = 0
    with connection.cursor() as cursor:
        for hour in range(0, DAY_MINUTES, 60):
            start = first + timedelta(minutes=hour)
            last = start + timedelta(minutes=60 if hour + 60 == DAY_MINUTES else 59)
            cursor.execute(ROWS, {"first": start, "last": last})
            added += cursor.rowcount
    return added


def measure(now_text: str, repetitions: int) -> dict[str, list[float]]:
    """Milliseconds of each question."""
    now = datetime.fromisoformat(now_text)
    organisation = Organisation.objects.filter(slug__startswith="usage-").order_by("slug")[0]
    namespace = organisation.namespaces.order_by("pk")[0]
    one, all_of_one, fleet = Scope(organisation.pk, namespace.pk), Scope(organisation.pk), Scope(None)
    window = window_of("24h", now)
    questions: dict[str, Callable[[], object]] = {
        "24 hours of one namespace": lambda: totals(one, window),
        "24 hours of the fleet": lambda: totals(fleet, window),
        "stats of one namespace": lambda: stats_answer(one, "24h", now=now),
        "stats of an organisation": lambda: stats_answer(all_of_one, "24h", now=now),
        "stats of the fleet, by organisation": lambda: stats_answer(fleet, "24h", now=now),
        "series of one namespace": lambda: series_answer(one, "24h", None, now=now),
        "series of the fleet": lambda: series_answer(fleet, "24h", None, now=now),
        "what a socket of an organisation is told": lambda: live_message(f"org/{organisation.pk}", now=now),
        "what a socket of the fleet is told": lambda: live_message("fleet", now=now),
    }
    return {name: _milliseconds(ask, repetitions) for name, ask in questions.items()}


def _milliseconds(ask: Callable[[], object], repetitions: int) -> list[float]:
    for _ in range(WARM):
        ask()
    found = []
    for _ in range(repetitions):
        began = time.perf_counter()
        ask()
        found.append((time.perf_counter() - began) * 1e3)
    return found
