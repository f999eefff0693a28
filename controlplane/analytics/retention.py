"""Deletes old rows in small steps. Minutes are dropped by the day, and only once the whole day is rolled up."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import OperationalError, connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from controlplane.analytics.models import (
    Divergence,
    EngineTotal,
    Eviction,
    EvictionCounter,
    JournalRead,
    KeyMinute,
    KeySeries,
    LedgerEntry,
    Minute,
    PinHeld,
    PoolMinute,
    PredictedEffect,
    RefusedRow,
    Residence,
    ReuseCurve,
    Rolled,
    Series,
)
from controlplane.analytics.partitions import (
    PARTITIONS_LOCK,
    partitions,
    partitions_ahead,
)
from controlplane.analytics.rolling import LEVELS, Level
from controlplane.analytics.windows import DAY_SECONDS, floored
from controlplane.database.locks import alone
from controlplane.fleet.models import Agent
from tenants.locks import is_busy
from tenants.models import PolicyRevision
from tenants.services.housekeeping import rows_remove

log = logging.getLogger("luminet.analytics")

RETAINING_LOCK: Final = 7_446_220_473  # a number that no other lock uses
MINUTES_KEPT: Final = timedelta(days=3)
LEDGER_KEPT: Final = timedelta(days=40)
POOL_MINUTES_KEPT: Final = timedelta(days=9)
EVICTIONS_KEPT: Final = {300: timedelta(days=9), 3_600: timedelta(days=40)}  # by the bucket's level
REFUSED_KEPT: Final = timedelta(days=40)
PART_SECONDS: Final = 5.0
# A drop waits for all readers and writers of minutes, and new ones queue behind it: at most this long.
PATIENCE: Final = "500ms"


def retain(now: datetime) -> int:
    """Delete what is old and return how many rows and days. The next run tries what is left over or failed."""
    with alone(RETAINING_LOCK) as is_alone:
        return sum(_tried(name, part) for name, part in _parts(now)) if is_alone else 0


def _parts(now: datetime) -> list[tuple[str, Callable[[], int]]]:
    rows = [(queryset.model.__name__, partial(rows_remove, queryset, seconds=PART_SECONDS)) for queryset in _over(now)]
    pieces = [(f"pieces of {level.seconds} s", partial(pieces_forget, level, now)) for level in LEVELS.values()]
    days = ("days of minutes", partial(days_drop, now))
    return [("days ahead", lambda: len(partitions_ahead(now)) * 0), days, *pieces, *rows]


def _over(now: datetime) -> "list[QuerySet[Any]]":
    is_gone = ~Exists(Agent.objects.filter(pk=OuterRef("agent"), revoked_at=None))
    # An engine counts since its boot, however long ago; the entries compared with its count stay as long.
    has_total = Exists(
        EngineTotal.objects.filter(**{name: OuterRef(name) for name in ("agent", "boot", "namespace_id")})
    )
    # A running engine still reports counters that have not risen for long, so they must stay known.
    is_reporting = Exists(PoolMinute.objects.filter(agent=OuterRef("agent"), boot=OuterRef("boot")))
    return [
        *(Eviction.objects.filter(level=level, start__lt=now - kept_for) for level, kept_for in EVICTIONS_KEPT.items()),
        EvictionCounter.objects.filter(~is_reporting, at__lt=now - LEDGER_KEPT),
        PinHeld.objects.filter(is_gone),
        LedgerEntry.objects.filter(~has_total, day__lt=(now - LEDGER_KEPT).astimezone(UTC).date()),
        EngineTotal.objects.filter(at__lt=now - LEDGER_KEPT),
        JournalRead.objects.filter(at__lt=now - LEDGER_KEPT),
        PoolMinute.objects.filter(minute__lt=now - POOL_MINUTES_KEPT),
        RefusedRow.objects.filter(at__lt=now - REFUSED_KEPT),
        Residence.objects.filter(is_gone),
        ReuseCurve.objects.filter(is_gone),
        Divergence.objects.filter(is_gone),
        PredictedEffect.objects.filter(~Exists(PolicyRevision.objects.filter(pk=OuterRef("revision_id")))),
        # These get no more rows: an agent's last batch came before it was revoked.
        Series.objects.filter(is_gone, ~Exists(Minute.objects.filter(series_id=OuterRef("pk")))).exclude(agent=""),
        KeySeries.objects.filter(is_gone, ~Exists(KeyMinute.objects.filter(series_id=OuterRef("pk")))).exclude(
            agent=""
        ),
    ]


def days_drop(now: datetime) -> int:
    """Drop the days that are rolled up and so old that their rows are no longer accepted. Return how many."""
    expired_days = [day for day in partitions() if _moment(day) + timedelta(days=1) < now - MINUTES_KEPT]
    return sum(_dropped(day) for day in expired_days if is_day_rolled(day))


def is_day_rolled(day: date) -> bool:
    """Return whether the day is rolled up, down to its last five minutes."""
    start, end = _moment(day), _moment(day) + timedelta(days=1)
    for level in (LEVELS[300], LEVELS[3_600], LEVELS[86_400]):
        rolled = Rolled.objects.filter(level=level.seconds, start__gte=start, start__lt=end).count()
        if rolled < DAY_SECONDS // level.seconds:
            return False
    return True


def _dropped(day: date) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [PATIENCE])
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PARTITIONS_LOCK])
            cursor.execute("SELECT luminet_minutes_drop(%s)", [day])
    except OperationalError as error:
        if not is_busy(error):
            raise
        log.info("a day of minutes has to wait for the next run", extra={"day": day.isoformat()})
        return False
    return True


def pieces_forget(level: Level, now: datetime) -> int:
    """Delete old pieces and return how many. Marks go first: without its mark, no reader uses a piece."""
    before = _kept_from(level, now)
    Rolled.objects.filter(level=level.seconds, start__lt=before).delete()
    return sum(_pieces_delete(statement, level, before) for statement in (PIECES_DELETE, KEY_PIECES_DELETE))


def _kept_from(level: Level, now: datetime) -> datetime:
    """Return the day from which pieces stay. A piece stays at any age until the level above has summed it."""
    before = floored(now - timedelta(days=level.kept_days), DAY_SECONDS)
    above = next((candidate for candidate in LEVELS.values() if candidate.source == level.seconds), None)
    waiting = None if above is None else _first_waiting(level, above, before)
    return before if waiting is None else floored(waiting, DAY_SECONDS)


def _first_waiting(level: Level, above: Level, before: datetime) -> datetime | None:
    """Return the first span that is still to be summed from pieces of this level."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT min(start) FROM generate_series("
            "(SELECT date_trunc('day', min(start), 'UTC') FROM analytics_rolled WHERE level = %(level)s), "
            "%(before)s::timestamptz - %(step)s::interval, %(step)s::interval) AS span(start) WHERE NOT EXISTS "
            "(SELECT FROM analytics_rolled AS one WHERE one.level = %(above)s AND one.start = span.start)",
            {
                "level": level.seconds,
                "above": above.seconds,
                "before": before,
                "step": f"{above.seconds} s",
            },
        )
        (first,) = cursor.fetchone()
    return first if isinstance(first, datetime) else None


PIECES_DELETE: Final = (
    "DELETE FROM analytics_piece WHERE id = ANY(ARRAY("
    "SELECT id FROM analytics_piece WHERE level = %s AND start < %s ORDER BY start LIMIT 2000))"
)
KEY_PIECES_DELETE: Final = PIECES_DELETE.replace("analytics_piece", "analytics_keypiece")


def _pieces_delete(statement: str, level: Level, before: datetime) -> int:
    removed, until = 0, time.monotonic() + PART_SECONDS
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute(statement, [level.seconds, before])
            removed += cursor.rowcount
            if not cursor.rowcount:
                break
    return removed


def _moment(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _tried(name: str, part: Callable[[], int]) -> int:
    try:
        return part()
    except Exception:
        log.exception("retention left something undone", extra={"what": name})
        if not connection.is_usable():
            connection.close()  # the next part opens another
        return 0
