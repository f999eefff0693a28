"""Who may write to an hour, and who may roll it up: many of the first at once, or one of the second, never both.

So a piece that is marked as rolled is the sum of all there is. Whoever brings more takes the mark away, in the same
transaction: until it is rolled anew, readers add up what is below it.
"""

from collections.abc import Iterable
from typing import Final

from django.db import connection

from controlplane.analytics.windows import FLEET_LEVELS

HOURS_LOCK: Final = 744_622_047  # any number that nobody else locks in pairs
HOUR_SECONDS: Final = 3_600
# One after the other, the oldest first, by everybody: then nobody waits in a circle.
_TAKE: Final = "SELECT {lock}(%s, hour) FROM unnest(%s::integer[]) AS asked(hour)"
_UNROLL: Final = (
    "DELETE FROM analytics_rolled WHERE id = ANY(ARRAY("
    "SELECT rolled.id FROM unnest(%s::integer[], %s::bigint[]) AS told(level, start) "
    "JOIN analytics_rolled AS rolled ON rolled.level = told.level AND rolled.start = to_timestamp(told.start) "
    "ORDER BY rolled.id FOR UPDATE OF rolled))"
)


def hours_share(minutes: Iterable[int]) -> None:
    """Until the transaction ends nobody rolls up what these minutes (unix seconds) belong to."""
    _take("pg_advisory_xact_lock_shared", minutes)


def hours_hold(start: int, end: int) -> None:
    """Until the transaction ends nobody writes to the hours from `start` to before `end` (unix seconds)."""
    _take("pg_advisory_xact_lock", range(start, end, 60))


def _take(lock: str, minutes: Iterable[int]) -> None:
    hours = sorted({minute // HOUR_SECONDS for minute in minutes})
    if hours:
        with connection.cursor() as cursor:
            cursor.execute(_TAKE.format(lock=lock), [HOURS_LOCK, hours])


def unroll(minutes: Iterable[int]) -> None:
    """Within hours_share: no piece that these minutes belong to is whole any more."""
    spans = sorted({(level, minute // level * level) for minute in minutes for level in FLEET_LEVELS})
    with connection.cursor() as cursor:
        cursor.execute(_UNROLL, [[level for level, _ in spans], [start for _, start in spans]])
