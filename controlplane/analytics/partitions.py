"""The daily partitions of minutes, by namespace and by key: created before their first row, and dropped together."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.db import connection, transaction

PARENT: Final = "analytics_minute"
PARENTS: Final = (PARENT, "analytics_keyminute")
AHEAD_DAYS: Final = 2
_DATE: Final = "%Y%m%d"
PARTITIONS_LOCK: Final = 7_446_220_471  # a number that no other lock uses


def partition_name(day: date, parent: str = PARENT) -> str:
    return f"{parent}_{day:{_DATE}}"


def partitions(parent: str = PARENT) -> list[date]:
    """Return the days that have a partition, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid "
            "WHERE inhparent = %s::regclass ORDER BY 1",
            [parent],
        )
        return [_day_of(name) for (name,) in cursor.fetchall()]


def partitions_ensure(days: Iterable[date]) -> list[date]:
    """Create the partitions that are missing and return their days.

    Inside a caller's transaction, other callers wait until it ends.
    """
    requested_days = sorted(set(days))
    if not requested_days or not _missing(requested_days):
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PARTITIONS_LOCK])
        new_partitions = _missing(requested_days)
        for day, parent in new_partitions:
            _make(day, parent)
    return sorted({day for day, _ in new_partitions})


def _missing(days: Iterable[date]) -> list[tuple[date, str]]:
    existing = {(day, parent) for parent in PARENTS for day in partitions(parent)}
    return [(day, parent) for day in days for parent in PARENTS if (day, parent) not in existing]


def partitions_ahead(now: datetime) -> list[date]:
    """Create the partitions of today and of the next days."""
    today = now.astimezone(UTC).date()
    return partitions_ensure(today + timedelta(days=ahead) for ahead in range(AHEAD_DAYS + 1))


def _make(day: date, parent: str) -> None:
    """Create the table and attach it. Creating it as a partition would wait for all readers and writers of other days.

    The application does not own the tables, so a function of their owner does it.
    """
    with connection.cursor() as cursor:  # it sets a fillfactor, because rows are updated while their minute lasts
        cursor.execute("SELECT luminet_minutes_make(%s, %s)", [parent, day])


def _day_of(name: str) -> date:
    return datetime.strptime(name.rpartition("_")[2], _DATE).replace(tzinfo=UTC).date()
