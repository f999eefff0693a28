"""Usage as everybody has counted it, written straight into the tables: for tests that spoil one of them by hand."""

from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F

from controlplane.analytics.columns import CUSTOMER_KIND
from controlplane.analytics.models import EngineTotal, LedgerEntry, Piece, Rolled, Series

ALL_AGENTS, ALL_NAMESPACES = "", 0
MINUTE = """
INSERT INTO analytics_minute AS known (series_id, minute, requests, prompt_tokens, cached_tokens)
VALUES (%s, %s, %s, %s, %s) ON CONFLICT (series_id, minute) DO UPDATE SET requests = known.requests + excluded.requests,
    prompt_tokens = known.prompt_tokens + excluded.prompt_tokens,
    cached_tokens = known.cached_tokens + excluded.cached_tokens
"""


def series_make(agent: str, namespace: int, *, kind: str = CUSTOMER_KIND) -> Series:
    found, _ = Series.objects.get_or_create(
        agent=agent, namespace_id=namespace, model="m", kv_dtype="fp8", kind=kind, defaults={"organisation_id": 0}
    )
    return found


def minute_add(series: Series, minute: datetime, requests: int, prompt: int, cached: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(MINUTE, [series.pk, minute, requests, prompt, cached])


@transaction.atomic
def counted(
    agent: str,
    namespace: int,
    at: datetime,
    *,
    boot: str = "b1",
    requests: int = 1,
    prompt: int = 100,
    cached: int = 60,
) -> None:
    """One report: ledger, minute and the engine's own total, in one transaction as ingest has it."""
    minute = at.astimezone(UTC).replace(second=0, microsecond=0)
    minute_add(series_make(agent, namespace), minute, requests, prompt, cached)
    more = {
        "requests": F("requests") + requests,
        "prompt_tokens": F("prompt_tokens") + prompt,
        "cached_tokens": F("cached_tokens") + cached,
    }
    whose: dict[str, Any] = {"agent": agent, "boot": boot, "namespace_id": namespace}
    LedgerEntry.objects.get_or_create(day=minute.date(), **whose)
    LedgerEntry.objects.filter(day=minute.date(), **whose).update(**more)
    none = {"requests": 0, "prompt_tokens": 0, "cached_tokens": 0, "upto": 0, "at": at}
    EngineTotal.objects.get_or_create(**whose, defaults=none)
    EngineTotal.objects.filter(**whose).update(**more, upto=F("upto") + 1, at=at)


def rolled(level: int, start: datetime, namespace: int, *, requests: int, prompt: int, cached: int) -> Piece:
    """A piece of all agents, and that it counts."""
    Rolled.objects.get_or_create(level=level, start=start)
    return Piece.objects.create(
        level=level,
        start=start,
        series=series_make(ALL_AGENTS, namespace),
        requests=requests,
        prompt_tokens=prompt,
        cached_tokens=cached,
    )
