"""Locks on hours: many transactions may write to an hour at once, or one may roll it up, but never both.

So a piece marked as rolled up is the sum of all rows. A transaction that adds rows removes the mark; until the next
rollup, readers sum what is below the piece.
"""

from collections.abc import Iterable
from typing import Final

from django.db import connection

from controlplane.analytics.windows import FLEET_LEVELS

HOURS_LOCK: Final = 744_622_047  # a number that no other two-part lock uses
HOUR_SECONDS: Final = 3_600
# Every caller locks the hours one by one, oldest first, so there is no deadlock.
_TAKE: Final = "SELECT {lock}(%s, hour) FROM unnest(%s::integer[]) AS asked(hour)"
_UNROLL: Final = (
    "DELETE FROM analytics_rolled WHERE id = ANY(ARRAY("
    "SELECT rolled.id FROM unnest(%s::integer[], %s::bigint[]) AS told(level, start) "
    "JOIN analytics_rolled AS rolled ON rolled.level = told.level AND rolled.start = to_timestamp(told.start) "
    "ORDER BY rolled.id FOR UPDATE OF rolled))"
)


def hours_share(minutes: Iterable[int]) -> None:
    """Keep these minutes (unix seconds) from being rolled up until the transaction ends."""
    _take("pg_advisory_xact_lock_shared", minutes)


def hours_hold(start: int, end: int) -> None:
    """Keep others from writing to the hours from `start` to before `end` (unix seconds) until the transaction ends."""
    _take("pg_advisory_xact_lock", range(start, end, 60))


def _take(lock: str, minutes: Iterable[int]) -> None:
    hours = sorted({minute // HOUR_SECONDS for minute in minutes})
    if hours:
        with connection.cursor() as cursor:
            cursor.execute(_TAKE.format(lock=lock), [HOURS_LOCK, hours])


def unroll(minutes: Iterable[int]) -> None:
    """Unmark all pieces that these minutes belong to. Call it within `hours_share`."""
    spans = sorted({(level, minute // level * level) for minute in minutes for level in FLEET_LEVELS})
    with connection.cursor() as cursor:
        cursor.execute(_UNROLL, [[level for level, _ in spans], [start for _, start in spans]])
