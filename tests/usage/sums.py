"""What is stored of usage, added up without the code that readers use: by pieces where they are rolled, else below.

Also what takes the minutes away between tests, which Django's own cleaning leaves: their table is not managed by it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from controlplane.analytics.columns import ADDED, COUNT_BITS, MISSED_COLUMN
from controlplane.analytics.ingest import usage_store
from controlplane.analytics.partitions import PARENTS
from controlplane.fleet.recording import Heard
from engine_agent.contracts.usage import Row, row_document
from engine_agent.contracts.wire import Report

BELOW = {86_400: 3_600, 3_600: 300, 300: 0, 60: 0}
MASK = 2**COUNT_BITS - 1
Sums = Counter[str]


def usage_report(rows: Iterable[Row | Any], *, boot: str = "boot-1", **changes: Any) -> Report:
    documents = [row_document(row) if isinstance(row, Row) else row for row in rows]
    return Report("usage", {"boot": boot, "upto": 1, "rows": documents, "totals": {}, "lost": 0, **changes})


def store(*reports: Report, agent: str = "agent-1", now: datetime | None = None) -> Sequence[Any]:
    """As the fleet does it; what is refused."""
    with transaction.atomic():
        told = {agent: list(enumerate(reports, 1))}
        return usage_store(told, now or timezone.now()).get(agent, Heard()).refused_rows


def sums_of(rows: Iterable[Row]) -> Sums:
    """By column, and times by code."""
    found = Sums()
    for row in rows:
        found.update(row.counts)
        found.update({column: row.missed.get(reason, 0) for reason, column in MISSED_COLUMN.items()})
        found.update({f"time {code}": count for code, count in row.times.items()})
    return +found


def minutes_sums(namespace: int | None = None) -> Sums:
    """Of all minutes there are; None: of everybody."""
    where = "" if namespace is None else "WHERE series.namespace_id = %s"
    columns = ", ".join(f"minute.{name}" for name in (*ADDED, "times"))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {columns} FROM analytics_minute AS minute "
            f"JOIN analytics_series AS series ON series.id = minute.series_id {where}",
            [] if namespace is None else [namespace],
        )
        return _added(cursor.fetchall())


def read_sums(start: datetime, end: datetime, namespace: int | None = None) -> Sums:
    """Of whole days, as whoever reads may find it at any moment."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        found, at = Sums(), start
        while at < end:
            found += _span_sums(cursor, 86_400, at, namespace)
            at += timedelta(days=1)
        return found


def _span_sums(cursor: Any, level: int, start: datetime, namespace: int | None) -> Sums:
    cursor.execute("SELECT count(*) FROM analytics_rolled WHERE level = %s AND start = %s", [level, start])
    if cursor.fetchone()[0]:
        return piece_sums(cursor, level, start, namespace)
    below, found = BELOW[level], Sums()
    if not below:
        return _below_sums(cursor, start, start + timedelta(seconds=level), namespace)
    for place in range(level // below):
        found += _span_sums(cursor, below, start + timedelta(seconds=place * below), namespace)
    return found


def piece_sums(cursor: Any, level: int, start: datetime, namespace: int | None) -> Sums:
    columns = ", ".join(f"piece.{name}" for name in (*ADDED, "times"))
    cursor.execute(
        f"SELECT {columns} FROM analytics_piece AS piece "
        "JOIN analytics_series AS series ON series.id = piece.series_id "
        "WHERE piece.level = %s AND piece.start = %s AND series.namespace_id = %s AND series.agent = ''",
        [level, start, namespace or 0],
    )
    return _added(cursor.fetchall())


def _below_sums(cursor: Any, start: datetime, end: datetime, namespace: int | None) -> Sums:
    columns = ", ".join(f"minute.{name}" for name in (*ADDED, "times"))
    cursor.execute(
        f"SELECT {columns} FROM analytics_minute AS minute JOIN analytics_series AS series "
        "ON series.id = minute.series_id WHERE minute.minute >= %s AND minute.minute < %s "
        "AND (series.namespace_id = %s OR %s::bigint IS NULL)",
        [start, end, namespace, namespace],
    )
    return _added(cursor.fetchall())


def _added(rows: Iterable[Sequence[Any]]) -> Sums:
    found = Sums()
    for *counts, times in rows:
        found.update(dict(zip(ADDED, counts, strict=True)))
        for one in times:
            found[f"time {one >> COUNT_BITS}"] += one & MASK
    return +found


def minutes_forget() -> None:
    """All days of them: for tests whose transactions are committed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT string_agg(inhrelid::regclass::text, ', ') FROM pg_inherits WHERE inhparent = ANY(%s::regclass[])",
            [list(PARENTS)],
        )
        (tables,) = cursor.fetchone()
        if tables:
            cursor.execute(f"DROP TABLE {tables}")
