"""Counts over a window: of customers' requests, unless other kinds are named.

Each function reads one snapshot. Read numbers that have to agree inside one `consistent_read()`, which also looks up
the spans of a window only once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, Literal

from django.db import connection

from controlplane.analytics.columns import ADDED
from controlplane.analytics.sums import KINDS, MOST, Scope, counts_by, first_pieces, first_row, times_by_code
from controlplane.analytics.windows import FLEET_LEVELS, LEVELS, Span, Window, cover, levels_of, step_check, step_starts
from tenants.consistent_reads import consistent_read
from tenants.models import Namespace, Organisation

__all__ = ["Scope"]  # re-exported
Counts = Mapping[str, int]  # by columns.ADDED
NOTHING: Final[Counts] = dict.fromkeys(ADDED, 0)
MINUTES_KEPT: Final = timedelta(days=4)  # three days, and one that may not be dropped yet


@dataclass(frozen=True, slots=True)
class Totals:
    as_of: datetime
    counts: Counts
    times: Mapping[int, int]  # by histogram code


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a series: what was counted from `start` to before `end`."""

    start: datetime
    end: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class Named:
    slug: str
    is_deleted: bool


def database_now() -> datetime:
    """Return the database's time, the one clock that all web processes share."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        ((now,),) = cursor.fetchall()
    return now.astimezone(UTC)  # type: ignore[no-any-return]


def spans_of(window: Window, *, is_fleet: bool, step_seconds: int | None = None) -> list[Span]:
    """Return the spans that cover the window. `is_fleet`: for the whole fleet, which also has pieces of one minute."""
    levels = levels_of(is_fleet=is_fleet, step_seconds=step_seconds)
    with connection.cursor() as cursor:
        cursor.execute(_RUNS, {"levels": list(levels), "start": window.start, "end": window.until})
        rolled = [Span(*row) for row in cursor.fetchall()]
    return cover(window, rolled, is_fleet=is_fleet, step_seconds=step_seconds)


def totals(
    scope: Scope, window: Window, *, kinds: Sequence[str] = KINDS, spans: Sequence[Span] | None = None
) -> Totals:
    with consistent_read():
        window_spans = spans_of(window, is_fleet=scope.is_fleet) if spans is None else spans
        ((_, counts),) = counts_by(scope, window_spans, kinds=kinds)
        return Totals(window.end, counts, times_by_code(scope, window_spans, kinds=kinds))


def totals_counts(
    scope: Scope,
    window: Window,
    *,
    kinds: Sequence[str] | None = None,
    columns: Sequence[str] = ADDED,
    spans: Sequence[Span] | None = None,
) -> Counts:
    """Return the counts without the latency histogram, which is most of the work."""
    with consistent_read():
        window_spans = spans_of(window, is_fleet=scope.is_fleet) if spans is None else spans
        ((_, counts),) = counts_by(scope, window_spans, kinds=kinds, columns=columns)
        return counts


def totals_by(
    scope: Scope,
    window: Window,
    *,
    by: Literal["namespace", "model", "organisation"],
    kinds: Sequence[str] | None = None,
    columns: Sequence[str] = ADDED,
    spans: Sequence[Span] | None = None,
) -> dict[Any, Counts]:
    """Return counts by namespace id, organisation id or model name. `spans` must not be those of the whole fleet."""
    with consistent_read():
        is_fleet = scope.is_fleet and by == "model"
        window_spans = spans_of(window, is_fleet=is_fleet) if spans is None else spans
        return {key: counts for (key,), counts in counts_by(scope, window_spans, by, kinds=kinds, columns=columns)}


def totals_by_day_and_model(scope: Scope, start_day: date, end_day: date) -> dict[tuple[date, str], Counts]:
    """Return the counts of whole UTC days, including the last, of which there is only what was counted so far."""
    first, last = (datetime.combine(day, time(), UTC) for day in (start_day, end_day))
    window = Window("days", first, last + timedelta(days=1), is_open=False)
    with consistent_read():
        return window_by_day_and_model(scope, spans_of(window, is_fleet=scope.is_fleet))


def window_by_day_and_model(
    scope: Scope, spans: Sequence[Span], *, columns: Sequence[str] = ADDED
) -> dict[tuple[date, str], Counts]:
    """Return the counts of known spans. The first and last day have only what lies in the spans."""
    return {(day, model): counts for (day, model), counts in counts_by(scope, spans, "day", "model", columns=columns)}


def window_times(scope: Scope, spans: Sequence[Span]) -> Mapping[int, int]:
    """Return the latency histogram of known spans: the count of each code."""
    return times_by_code(scope, spans)


def added(parts: Iterable[Counts]) -> Counts:
    """Return the sum of the parts, with the cap that every sum has."""
    sums = dict(NOTHING)
    for part in parts:
        for name in sums:
            sums[name] = min(MOST, sums[name] + part[name])
    return sums


def series(
    scope: Scope,
    window: Window,
    step_seconds: int,
    *,
    kinds: Sequence[str] | None = None,
    columns: Sequence[str] = ADDED,
) -> list[Point]:
    """Return a point for every step, even if nothing was counted. Together they equal `totals`."""
    step_check(step_seconds, window)
    with consistent_read():
        spans = spans_of(window, is_fleet=scope.is_fleet, step_seconds=step_seconds)
        rows = counts_by(scope, spans, "step", kinds=kinds, columns=columns, step_seconds=step_seconds)
        counted = {max(at, window.start): counts for (at,), counts in rows}
    starts = step_starts(window, step_seconds)
    ends = [*starts[1:], window.until]
    return [Point(at, end, counted.get(at, NOTHING)) for at, end in zip(starts, ends, strict=True)]


def first_minute(scope: Scope, *, now: datetime | None = None) -> datetime | None:
    """Return the first minute in which anything of a customer was counted, for any model; None without any."""
    scope, last = replace(scope, model=None), now or database_now()
    with consistent_read():
        pieces = first_pieces(scope, FLEET_LEVELS if scope.is_fleet else LEVELS)
        if not pieces:
            return first_row(scope, last - MINUTES_KEPT, last + timedelta(minutes=1))
        level, start = _finest(pieces)
        # Include rows that are not rolled up: they may be late, or the rollup may be behind.
        return first_row(scope, last - MINUTES_KEPT, start + timedelta(seconds=level)) or start


def _finest(pieces: Mapping[int, datetime]) -> tuple[int, datetime]:
    """Return level and start of the smallest piece kept of the oldest time: the first number lies in it."""
    level, start = min(((level, start) for level, start in pieces.items()), key=lambda piece: (piece[1], piece[0]))
    for finer, at in sorted(pieces.items(), reverse=True):
        if finer < level and at < start + timedelta(seconds=level):
            level, start = finer, at
    return level, start


def residence_by(scope: Scope, *, by: Literal["namespace", "organisation"]) -> dict[int, int]:
    """Return the bytes in the cache by owner's id. Agents do not report them by model."""
    with connection.cursor() as cursor:
        cursor.execute(
            _RESIDENCE.format(
                by={"namespace": "namespace.id", "organisation": "namespace.organisation_id"}[by], most=MOST
            ),
            {
                "organisation": scope.organisation,
                "namespaces": None if scope.chosen is None else sorted(scope.chosen),
            },
        )
        return dict(cursor.fetchall())


def names_of(by: Literal["namespace", "organisation"], ids: Collection[int]) -> dict[int, Named]:
    """Return the owners' names. Deleted owners are included, because their numbers stay."""
    if by == "namespace":
        namespaces = Namespace.objects.filter(pk__in=ids).values_list("pk", "slug", "deleted_at")
        return {pk: Named(slug, deleted_at is not None) for pk, slug, deleted_at in namespaces}
    organisations = Organisation.objects.filter(pk__in=ids).values_list("pk", "slug", "state")
    return {pk: Named(slug, state == Organisation.State.DELETED) for pk, slug, state in organisations}


# Joins consecutive pieces of a level into one run, so there are few rows for any number of pieces.
_RUNS: Final = """
SELECT level, min(start), max(start) + level * interval '1 second'
FROM (
    SELECT level, start,
        start - level * row_number() OVER (PARTITION BY level ORDER BY start) * interval '1 second' AS run
    FROM analytics_rolled
    WHERE level = ANY(%(levels)s) AND start >= %(start)s AND start < %(end)s
) AS piece
GROUP BY level, run
"""
_RESIDENCE: Final = """
SELECT {by}, least(sum(residence.resident_bytes), {most})::bigint
FROM analytics_residence residence
JOIN tenants_namespace namespace ON namespace.id = residence.namespace_id
WHERE (%(organisation)s IS NULL OR namespace.organisation_id = %(organisation)s)
    AND (%(namespaces)s::bigint[] IS NULL OR namespace.id = ANY(%(namespaces)s))
GROUP BY 1
"""
