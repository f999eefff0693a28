"""The days of minutes, by namespace and by key: each is a table of its own, made ahead of its first row and dropped as
a whole, one with the other."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.db import connection, transaction

PARENT: Final = "analytics_minute"
PARENTS: Final = (PARENT, "analytics_keyminute")
AHEAD_DAYS: Final = 2
_DATE: Final = "%Y%m%d"
PARTITIONS_LOCK: Final = 7_446_220_471  # any number that nobody else locks


def partition_name(day: date, parent: str = PARENT) -> str:
    return f"{parent}_{day:{_DATE}}"


def partitions(parent: str = PARENT) -> list[date]:
    """The days there are, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid "
            "WHERE inhparent = %s::regclass ORDER BY 1",
            [parent],
        )
        return [_day_of(name) for (name,) in cursor.fetchall()]


def partitions_ensure(days: Iterable[date]) -> list[date]:
    """Which of them were made. In a transaction of its own, or within the caller's: then others wait for its end."""
    wanted = sorted(set(days))
    if not wanted or not _missing(wanted):
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PARTITIONS_LOCK])
        made = _missing(wanted)
        for day, parent in made:
            _make(day, parent)
    return sorted({day for day, _ in made})


def _missing(days: Iterable[date]) -> list[tuple[date, str]]:
    there = {(day, parent) for parent in PARENTS for day in partitions(parent)}
    return [(day, parent) for day in days for parent in PARENTS if (day, parent) not in there]


def partitions_ahead(now: datetime) -> list[date]:
    """Today's, and those of the days to come."""
    today = now.astimezone(UTC).date()
    return partitions_ensure(today + timedelta(days=ahead) for ahead in range(AHEAD_DAYS + 1))


def _make(day: date, parent: str) -> None:
    """Attached rather than made in place, which would wait for everybody who reads or writes any other day. By a
    function of the tables' owner, whom the application is not."""
    with connection.cursor() as cursor:  # a row is added to while its minute lasts: hence the fillfactor there
        cursor.execute("SELECT luminet_minutes_make(%s, %s)", [parent, day])


def _day_of(name: str) -> date:
    return datetime.strptime(name.rpartition("_")[2], _DATE).replace(tzinfo=UTC).date()
