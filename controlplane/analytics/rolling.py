"""Rolls past minutes up into pieces, so that windows of days are quick: one level and hour in each transaction.

A piece is written together with its mark of being complete, while no other transaction can write to its hours. Pieces
of one and five minutes sum rows of minutes; those of an hour and a day sum smaller pieces. Pieces that late rows have
unmarked are computed again and replaced: nothing is ever added to a piece.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from django.db import OperationalError, connection, transaction

from controlplane.analytics.adding import NAMES, replaced_on_conflict, sums, times_of_groups
from controlplane.analytics.hours import HOUR_SECONDS, hours_hold
from controlplane.analytics.key_rolling import ROLL_KEY_MINUTES, ROLL_KEY_PIECES
from controlplane.analytics.partitions import partitions
from controlplane.analytics.spans_sql import rows_of_spans
from controlplane.analytics.windows import DAY_SECONDS, floored
from controlplane.database.locks import alone
from tenants.locks import is_busy

log = logging.getLogger("luminet.analytics")

ROLLING_LOCK: Final = 7_446_220_472  # a number that no other lock uses
RUN_SECONDS: Final = 2.0  # of ten: a rollup delays writers; the next run does the rest
MOST_TOGETHER: Final = 64
QUICK_SECONDS: Final = 0.5
MOST_DUE: Final = 2_000  # looked up at a time
# Wait for an hour that is being written to. Other writers queue behind a waiting rollup, so the wait is short.
PATIENCE: Final = "500ms"
# Limit for each statement over minutes: less than the time after which a waiting writer is rejected.
# After HURRIED_TRIES failures, the ordinary limit applies.
MOST_HELD: Final = "2500ms"
HURRIED_TRIES: Final = 3


Span = dict[str, Any]  # the parameters of the statements


@dataclass(frozen=True, slots=True)
class Level:
    """A size of pieces. `after_seconds`: the wait after a span's end, until few rows are still to come.

    `source`: the level that it sums; 0: minutes.
    """

    seconds: int
    after_seconds: int
    source: int
    kept_days: int


LEVELS: Final = {
    60: Level(60, 20, 0, 3),
    300: Level(300, 40, 0, 9),
    3_600: Level(3_600, 120, 300, 40),
    86_400: Level(86_400, 600, 3_600, 800),
}


def roll(now: datetime, *, seconds: float = RUN_SECONDS) -> int:
    """Roll up as many spans as time allows and return how many. Return 0 while another process does it."""
    until = time.monotonic() + seconds
    with alone(ROLLING_LOCK) as is_alone:
        return _roll_until(now, until) if is_alone else 0


def _roll_until(now: datetime, until: float) -> int:
    """Roll up many spans together while they are small, as after an outage at night; one by one while they are
    large."""
    rolled, batch_size = 0, 1
    for level, starts in blocks_due(now):
        for first in range(0, len(starts), batch_size):
            began = time.monotonic()
            if began >= until:
                return rolled
            rolled += _rolled(level, starts[first : first + batch_size])
        batch_size = min(MOST_TOGETHER, batch_size * 2) if time.monotonic() - began < QUICK_SECONDS else 1
    return rolled


def blocks_due(now: datetime) -> list[tuple[Level, list[datetime]]]:
    """Return the due spans by level and block. Days and hours first: they are few, and their parts are complete."""
    large = [block for seconds in (86_400, 3_600) for block in _blocks(LEVELS[seconds], now)]
    small = [block for seconds in (60, 300) for block in _blocks(LEVELS[seconds], now)]
    return large + sorted(small, key=lambda block: block[1][0])


def _blocks(level: Level, now: datetime) -> Iterator[tuple[Level, list[datetime]]]:
    """Yield the due spans of each hour; of each day, if the level sums pieces."""
    block = DAY_SECONDS if level.source else HOUR_SECONDS
    for _, starts in groupby(due(level, now), key=lambda start: floored(start, block)):
        yield level, list(starts)


def due(level: Level, now: datetime) -> list[datetime]:
    """Return the starts of spans that are over and not rolled up, and of which all parts are complete."""
    first, last = _first(level, now), now - timedelta(seconds=level.seconds + level.after_seconds)
    if first is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            DUE,
            {
                "first": first,
                "last": last,
                "step": f"{level.seconds} s",
                "level": level.seconds,
                "source": level.source,
                "parts": level.seconds // level.source if level.source else 0,
                "most": MOST_DUE,
            },
        )
        return [start for (start,) in cursor.fetchall()]


DUE: Final = """
SELECT start FROM generate_series(%(first)s::timestamptz, %(last)s::timestamptz, %(step)s::interval) AS span(start)
WHERE NOT EXISTS (SELECT FROM analytics_rolled AS one WHERE one.level = %(level)s AND one.start = span.start)
AND (
    SELECT count(*) FROM analytics_rolled AS part
    WHERE part.level = %(source)s AND part.start >= span.start AND part.start < span.start + %(step)s::interval
) = %(parts)s
ORDER BY start LIMIT %(most)s
"""


def _first(level: Level, now: datetime) -> datetime | None:
    """Return the first day that the source still has. Spans without a source must not be rolled up again."""
    if level.source:
        with connection.cursor() as cursor:
            cursor.execute("SELECT min(start) FROM analytics_rolled WHERE level = %s", [level.source])
            (first,) = cursor.fetchone()
        return None if first is None else floored(first, DAY_SECONDS)
    days = partitions()
    if not days:
        return None
    first = datetime(days[0].year, days[0].month, days[0].day, tzinfo=UTC)
    if any(candidate.source == level.seconds for candidate in LEVELS.values()):
        return first
    return max(first, floored(now - timedelta(days=level.kept_days), DAY_SECONDS))


def _rolled(level: Level, starts: Sequence[datetime]) -> int:
    """Roll up the spans. Return 0 if their hours are being written to or it took too long; the next run tries again."""
    block_key = (level.seconds, starts[0])
    try:
        rolled = spans_roll(level, starts, is_hurried=_failed[block_key] < HURRIED_TRIES)
    except OperationalError as error:
        if not is_busy(error):
            raise
        _failed[block_key] += 1
        extra = {"level": level.seconds, "first": str(starts[0]), "times": _failed[block_key]}
        log_level = logging.ERROR if _failed[block_key] == HURRIED_TRIES else logging.INFO
        log.log(log_level, "spans have to wait for the next run", extra=extra)
        return 0
    _failed.pop(block_key, None)
    return rolled


_failed: Counter[tuple[int, datetime]] = Counter()  # consecutive failures in this process


def spans_roll(level: Level, starts: Sequence[datetime], *, is_hurried: bool = True) -> int:
    """Roll up the spans in one transaction and return how many. Leaves out spans of which a part is unmarked by now."""
    first, end = min(starts), max(starts) + timedelta(seconds=level.seconds)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [PATIENCE])
        if is_hurried and not level.source:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [MOST_HELD])
        hours_hold(int(first.timestamp()), int(end.timestamp()))
        span: Span = {"level": level.seconds, "source": level.source, "step": f"{level.seconds} s"}
        span |= {"first": first, "end": end, "starts": list(starts)}
        if level.source:
            cursor.execute(WHOLE, {**span, "parts": level.seconds // level.source})
            span["starts"] = [start for (start,) in cursor.fetchall()]
        for statement in _statements(level):
            cursor.execute(statement, span)
        cursor.execute(MARK, span)
        return len(span["starts"])


# Checked again under the lock: late rows may have unmarked a part since.
WHOLE: Final = """
SELECT date_bin(%(step)s::interval, start, 'epoch'::timestamptz) FROM analytics_rolled
WHERE level = %(source)s AND start >= %(first)s AND start < %(end)s
AND date_bin(%(step)s::interval, start, 'epoch'::timestamptz) = ANY(%(starts)s::timestamptz[])
GROUP BY 1 HAVING count(*) = %(parts)s
"""
MARK: Final = """
INSERT INTO analytics_rolled (level, start)
SELECT %(level)s, start FROM unnest(%(starts)s::timestamptz[]) AS whole(start) ON CONFLICT DO NOTHING
"""


def _statements(level: Level) -> Sequence[str]:
    if level.source:
        return (*ROLL_PIECES, *ROLL_KEY_PIECES)
    return ROLL_FLEET_MINUTES if level.seconds == 60 else (*ROLL_MINUTES, *ROLL_FLEET, *ROLL_KEY_MINUTES)


_MINUTES: Final = rows_of_spans("analytics_minute", "minute")
_PIECES: Final = rows_of_spans("analytics_piece", "start", "AND one.level = %(source)s")
_NEW_PIECES: Final = rows_of_spans(
    "analytics_piece",
    "start",
    "AND one.level = %(level)s "
    "AND (SELECT whose.namespace_id FROM analytics_series AS whose WHERE whose.id = one.series_id) <> 0",
)


def _roll_sql(rows: str, *, is_fleet: bool) -> tuple[str, str]:
    """Return two statements: the first creates missing series of pieces, the second writes the pieces of all rows."""
    namespace, organisation = ("0", "0") if is_fleet else ("series.namespace_id", "series.organisation_id")
    same = (
        f"target.namespace_id = {namespace} AND target.agent = '' AND target.model = series.model "
        "AND target.kv_dtype = series.kv_dtype AND target.kind = series.kind"
    )
    series = f"""
    INSERT INTO analytics_series (namespace_id, organisation_id, agent, model, kv_dtype, kind)
    SELECT DISTINCT {namespace}, {organisation}, '', series.model, series.kv_dtype, series.kind
    FROM (SELECT DISTINCT series_id FROM ({rows}) AS row) AS told
    JOIN analytics_series AS series ON series.id = told.series_id
    WHERE NOT EXISTS (SELECT FROM analytics_series AS target WHERE {same})
    ON CONFLICT (namespace_id, agent, model, kv_dtype, kind) DO NOTHING
    """  # noqa: S608
    # Each series' target is looked up once, by indexes.
    pieces = f"""
    WITH rows AS MATERIALIZED ({rows}),
    targets AS MATERIALIZED (
        SELECT series_id, (
            SELECT target.id FROM analytics_series AS series JOIN analytics_series AS target ON {same}
            WHERE series.id = named.series_id
        ) AS target FROM (SELECT DISTINCT series_id FROM rows) AS named
    ),
    told AS MATERIALIZED (
        SELECT span, target, {NAMES}, times FROM rows JOIN targets USING (series_id) WHERE target IS NOT NULL
    )
    INSERT INTO analytics_piece (level, start, series_id, {NAMES}, times)
    SELECT %(level)s, span, target, {NAMES}, coalesce(times, '{{}}')
    FROM (SELECT span, target, {sums("told")} FROM told GROUP BY span, target) AS added
    LEFT JOIN ({times_of_groups("told", "span, target")}) AS timed USING (span, target)
    ORDER BY span, target
    ON CONFLICT (level, series_id, start) DO UPDATE SET {replaced_on_conflict()}
    """  # noqa: S608
    return series, pieces


ROLL_FLEET_MINUTES: Final = _roll_sql(_MINUTES, is_fleet=True)
ROLL_MINUTES: Final = _roll_sql(_MINUTES, is_fleet=False)
ROLL_FLEET: Final = _roll_sql(_NEW_PIECES, is_fleet=True)
ROLL_PIECES: Final = _roll_sql(_PIECES, is_fleet=False)  # including the fleet's, whose series have namespace 0
