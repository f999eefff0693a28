"""What rows are about, as small numbers. Found by where it lies in an index, and made where it is not there yet.

The numbers are looked up each time and kept nowhere: what a transaction that was rolled back made, or a database from a
backup no longer has, must never be counted on, for then one customer's tokens would be another's.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from django.db import connection


class SeriesKey(NamedTuple):
    """In the order of the index."""

    namespace: int
    agent: str
    model: str
    kv_dtype: str
    kind: str
    organisation: int


class KeySeriesKey(NamedTuple):
    """The same of one API key; `key` is its id."""

    namespace: int
    agent: str
    model: str
    key: str
    organisation: int


K = TypeVar("K", SeriesKey, KeySeriesKey)


def _statements(table: str, kinds: Mapping[str, str]) -> tuple[str, str]:
    """`kinds` of the columns of its index, in their order; the organisation follows them."""
    index, told = ", ".join(kinds), ", ".join([*kinds, "organisation_id"])
    arrays = ", ".join(f"%s::{kind}[]" for kind in (*kinds.values(), "bigint"))
    keys = f"unnest({arrays}) WITH ORDINALITY AS told({told}, place)"
    same = " AND ".join(f"one.{name} = told.{name}" for name in kinds)
    # A subquery for each, never a join: a join of many keys would read all of the table.
    find = f"SELECT (SELECT id FROM {table} AS one WHERE {same}) FROM {keys} ORDER BY told.place"  # noqa: S608
    order = ", ".join(str(place) for place in range(1, len(kinds) + 1))
    make = (
        f"INSERT INTO {table} ({told}) SELECT {told} FROM {keys} ORDER BY {order} "  # noqa: S608
        f"ON CONFLICT ({index}) DO NOTHING"
    )
    return find, make


SERIES_FIND, SERIES_MAKE = _statements(
    "analytics_series", {"namespace_id": "bigint", "agent": "text", "model": "text", "kv_dtype": "text", "kind": "text"}
)
KEY_SERIES_FIND, KEY_SERIES_MAKE = _statements(
    "analytics_keyseries", {"namespace_id": "bigint", "agent": "text", "model": "text", "key": "text"}
)


def series_ensure(keys: Collection[SeriesKey]) -> dict[SeriesKey, int]:
    """The number of each, within the caller's transaction."""
    return _ensure(keys, SERIES_FIND, SERIES_MAKE)


def key_series_ensure(keys: Collection[KeySeriesKey]) -> dict[KeySeriesKey, int]:
    return _ensure(keys, KEY_SERIES_FIND, KEY_SERIES_MAKE)


def _ensure(keys: Collection[K], find: str, make: str) -> dict[K, int]:
    found = _found(list(keys), find)
    missing = [key for key in keys if key not in found]
    if missing:
        with connection.cursor() as cursor:
            cursor.execute(make, series_columns(missing))
        found |= _found(missing, find)
    return found


def _found(keys: Sequence[K], find: str) -> dict[K, int]:
    if not keys:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(find, series_columns(keys))
        ids = cursor.fetchall()
    return {key: id_ for key, (id_,) in zip(keys, ids, strict=True) if id_ is not None}


def series_columns(keys: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*keys, strict=True)]
