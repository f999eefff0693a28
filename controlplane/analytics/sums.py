"""One statement that sums spans of minutes and pieces. `selectors.py` decides which spans.

The statement finds rows by series and then by time, so it reads no more than it sums.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection

from controlplane.analytics.columns import ADDED, BLOCK_COLUMNS, CACHE_KIND, COUNT_BITS, CUSTOMER_KIND, KEY_ADDED
from controlplane.analytics.windows import Span

KINDS: Final = (CUSTOMER_KIND, CACHE_KIND)  # no column is counted by both
MOST: Final = 2**62  # caps every sum, because agents may report absurd numbers
DAY: Final = "(at AT TIME ZONE 'UTC')::date"
GROUPS: Final = {
    "namespace": "namespace_id",
    "organisation": "organisation_id",
    "model": "model",
    "day": DAY,
    "step": "date_bin(%(step)s * interval '1 second', at, 'epoch')",
}
_PARTS: Final = """
WITH span AS (
    SELECT * FROM unnest(%(levels)s::int[], %(starts)s::timestamptz[], %(ends)s::timestamptz[]) AS s(level, first, last)
), part AS (
    SELECT series.organisation_id, series.namespace_id, series.model, piece.start AS at, {columns}
    FROM span
    JOIN {series} series ON series.agent = '' AND {pieces}
    JOIN {piece} piece ON piece.level = span.level AND piece.series_id = series.id
        AND piece.start >= span.first AND piece.start < span.last
    WHERE span.level > 0 AND {wanted}
    UNION ALL
    SELECT series.organisation_id, series.namespace_id, series.model, minute.minute AS at, {columns}
    FROM span
    JOIN {minute} minute ON minute.minute >= span.first AND minute.minute < span.last
    JOIN {series} series ON series.id = minute.series_id AND series.agent <> ''
    WHERE span.level = 0 AND {wanted}
)
"""


@dataclass(frozen=True, slots=True)
class Scope:
    """A selection of numbers: the fleet's, an organisation's, or those of some of its namespaces; `model`: of one
    model.

    `organisations` limits the fleet to these organisations, for numbers by organisation or namespace.
    """

    organisation: int | None
    namespace: int | None = None
    model: str | None = None
    namespaces: frozenset[int] | None = None  # the only ones that a bound key may see
    organisations: frozenset[int] | None = None

    @property
    def is_fleet(self) -> bool:
        return self.organisation is None

    @property
    def chosen(self) -> frozenset[int] | None:
        """The ids of the selected namespaces; None means all."""
        if self.namespace is None:
            return self.namespaces
        only_namespace = frozenset({self.namespace})
        return only_namespace if self.namespaces is None else only_namespace & self.namespaces


def counts_by(
    scope: Scope,
    spans: Sequence[Span],
    *by: str,
    kinds: Sequence[str] | None = None,
    columns: Sequence[str] = ADDED,
    step_seconds: int = 0,
) -> Iterator[tuple[tuple[Any, ...], dict[str, int]]]:
    """Yield sums of columns of ADDED, grouped by names of GROUPS; without any, one total.

    `kinds` defaults to those that count any of these columns.
    """
    kinds = _kinds_of(columns) if kinds is None else kinds
    keys = [GROUPS[name] for name in by]
    sums = [f"least(coalesce(sum({name}), 0), {MOST})::bigint" for name in columns]
    selected_columns, groups = ", ".join([*keys, *sums]), ", ".join(keys) or "()"
    sql = f"{_parts(scope, ', '.join(columns), by)} SELECT {selected_columns} FROM part GROUP BY {groups}"  # noqa: S608  # names are ours
    for row in _rows(sql, _parameters(scope, spans, kinds) | {"step": step_seconds}):
        yield row[: len(by)], dict(zip(columns, row[len(by) :], strict=True))


def counts_by_key(
    scope: Scope, spans: Sequence[Span], *, most: int, only: Iterable[str] | None = None
) -> dict[str, dict[str, int]]:
    """Return sums of KEY_ADDED by key id, for the keys with the most prompt tokens. The empty id: no key."""
    sums = [f"least(sum({name}), {MOST})::bigint AS {name}" for name in KEY_ADDED]
    conditions = _wanted(scope, of_kinds=False) + ("" if only is None else " AND series.key = ANY(%(keys)s)")
    parts = _PARTS.format(
        columns=f"series.key, {', '.join(KEY_ADDED)}", pieces="true", wanted=conditions, **_KEY_TABLES
    )
    sql = (
        f"{parts} SELECT key, {', '.join(sums)} FROM part GROUP BY key ORDER BY prompt_tokens DESC, key LIMIT %(most)s"  # noqa: S608  # ours
    )
    rows = _rows(sql, _parameters(scope, spans, ()) | {"most": most, "keys": list(only or ())})
    return {key: dict(zip(KEY_ADDED, counts, strict=True)) for key, *counts in rows}


def _kinds_of(columns: Sequence[str]) -> Sequence[str]:
    """Return the kinds to read. Half of all rows count only blocks; other columns do not need them."""
    return KINDS if any(name in BLOCK_COLUMNS for name in columns) else (CUSTOMER_KIND,)


def times_by_code(scope: Scope, spans: Sequence[Span], *, kinds: Sequence[str] = (CUSTOMER_KIND,)) -> dict[int, int]:
    """Return the latency histogram: the count of each code."""
    sql = (
        f"{_parts(scope, 'times', ())} SELECT one >> {COUNT_BITS}, sum(one & {(1 << COUNT_BITS) - 1})::bigint "  # noqa: S608  # ours
        "FROM part, unnest(times) AS one GROUP BY 1"
    )
    return dict(_rows(sql, _parameters(scope, spans, kinds)))


def first_pieces(scope: Scope, levels: Sequence[int]) -> dict[int, datetime]:
    """Return where the oldest piece of each level begins. Needs one index lookup for each series and level."""
    sql = f"""
        SELECT asked.level, min(found.start)
        FROM unnest(%(levels)s::int[]) AS asked(level)
        CROSS JOIN (
            SELECT id FROM analytics_series series WHERE agent = '' AND {_of_pieces(scope, ())} AND {_wanted(scope)}
        ) AS series
        CROSS JOIN LATERAL (
            SELECT start FROM analytics_piece piece WHERE piece.level = asked.level AND piece.series_id = series.id
            ORDER BY start LIMIT 1
        ) AS found
        GROUP BY asked.level
    """  # noqa: S608  # names are ours
    return dict(_rows(sql, _parameters(scope, (), [CUSTOMER_KIND]) | {"levels": list(levels)}))


def first_row(scope: Scope, start: datetime, end: datetime) -> datetime | None:
    """Return the first minute from `start` to before `end` that has a row."""
    sql = f"""
        SELECT min(minute.minute)
        FROM analytics_minute minute JOIN analytics_series series ON series.id = minute.series_id
        WHERE minute.minute >= %(start)s AND minute.minute < %(end)s AND series.agent <> '' AND {_wanted(scope)}
    """  # noqa: S608  # names are ours
    ((minute,),) = _rows(sql, _parameters(scope, (), [CUSTOMER_KIND]) | {"start": start, "end": end})
    return minute  # type: ignore[no-any-return]


def _parts(scope: Scope, columns: str, by: Sequence[str]) -> str:
    return _PARTS.format(columns=columns, pieces=_of_pieces(scope, by), wanted=_wanted(scope), **_TABLES)


_TABLES: Final = {"series": "analytics_series", "piece": "analytics_piece", "minute": "analytics_minute"}
_KEY_TABLES: Final = {"series": "analytics_keyseries", "piece": "analytics_keypiece", "minute": "analytics_keyminute"}


def _of_pieces(scope: Scope, by: Sequence[str]) -> str:
    """Select the series of pieces. The fleet has its own pieces, which cannot be divided by organisation."""
    has_own = scope.is_fleet and not {"organisation", "namespace"} & {*by}
    return "series.namespace_id = 0" if has_own else "series.namespace_id <> 0"


def _wanted(scope: Scope, *, of_kinds: bool = True) -> str:
    conditions = ["series.kind = ANY(%(kinds)s)"] if of_kinds else ["true"]
    if scope.organisation is not None:
        conditions.append("series.organisation_id = %(organisation)s")
    if scope.organisations is not None:
        conditions.append("series.organisation_id = ANY(%(organisations)s)")
    if scope.chosen is not None:
        conditions.append("series.namespace_id = ANY(%(namespaces)s)")
    if scope.model is not None:
        conditions.append("series.model = %(model)s")
    return " AND ".join(conditions)


def _parameters(scope: Scope, spans: Sequence[Span], kinds: Sequence[str]) -> dict[str, Any]:
    return {
        "levels": [span.level for span in spans],
        "starts": [span.start for span in spans],
        "ends": [span.end for span in spans],
        "kinds": list(kinds),
        "organisation": scope.organisation,
        "namespaces": sorted(scope.chosen or ()),
        "organisations": sorted(scope.organisations or ()),
        "model": scope.model,
    }


def _rows(sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
