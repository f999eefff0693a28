"""What rows are about, as small numbers. Found by where it lies in an index, and made where it is not there yet.

The numbers are looked up each time and kept nowhere: what a transaction that was rolled back made, or a database from a
backup no longer has, must never be counted on, for then one customer's tokens would be another's.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from django.db import connection


class SeriesKey(NamedTuple):
    """In the order of the index."""

    namespace: int
    agent: str
    model: str
    kv_dtype: str
    kind: str
    organisation: int


_KEYS: Final = (
    "unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[]) "
    "WITH ORDINALITY AS told(namespace_id, agent, model, kv_dtype, kind, organisation_id, place)"
)
# A subquery for each, never a join: a join of many keys would read all of the table.
SERIES_FIND: Final = (
    "SELECT (SELECT id FROM analytics_series AS one WHERE one.namespace_id = told.namespace_id "  # noqa: S608
    "AND one.agent = told.agent AND one.model = told.model AND one.kv_dtype = told.kv_dtype AND one.kind = told.kind) "
    f"FROM {_KEYS} ORDER BY told.place"
)
SERIES_MAKE: Final = (
    "INSERT INTO analytics_series (namespace_id, agent, model, kv_dtype, kind, organisation_id) "  # noqa: S608
    f"SELECT namespace_id, agent, model, kv_dtype, kind, organisation_id FROM {_KEYS} ORDER BY 1, 2, 3, 4, 5 "
    "ON CONFLICT (namespace_id, agent, model, kv_dtype, kind) DO NOTHING"
)


def series_ensure(keys: Collection[SeriesKey]) -> dict[SeriesKey, int]:
    """The number of each, within the caller's transaction."""
    found = _find(list(keys))
    missing = [key for key in keys if key not in found]
    if missing:
        with connection.cursor() as cursor:
            cursor.execute(SERIES_MAKE, series_columns(missing))
        found |= _find(missing)
    return found


def _find(keys: Sequence[SeriesKey]) -> dict[SeriesKey, int]:
    if not keys:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(SERIES_FIND, series_columns(keys))
        ids = cursor.fetchall()
    return {key: id_ for key, (id_,) in zip(keys, ids, strict=True) if id_ is not None}


def series_columns(keys: Sequence[SeriesKey]) -> list[list[object]]:
    return [list(column) for column in zip(*keys, strict=True)]
