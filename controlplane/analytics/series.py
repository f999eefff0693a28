"""Ids of series, which are the subjects of rows. Found by an index, and created if missing.

The ids are looked up each time and never cached. An id from a rolled-back transaction, or one that a restored database
lacks, could count one customer's tokens as another's.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from django.db import connection


class SeriesKey(NamedTuple):
    """The identity of a series, in the order of the index."""

    namespace: int
    agent: str
    model: str
    kv_dtype: str
    kind: str
    organisation: int


class KeySeriesKey(NamedTuple):
    """The identity of an API key's series. `key` is the key's id."""

    namespace: int
    agent: str
    model: str
    key: str
    organisation: int


K = TypeVar("K", SeriesKey, KeySeriesKey)


def _statements(table: str, kinds: Mapping[str, str]) -> tuple[str, str]:
    """Return the statements that find and create series. `kinds`: types of the index columns; the organisation
    follows."""
    index, columns = ", ".join(kinds), ", ".join([*kinds, "organisation_id"])
    arrays = ", ".join(f"%s::{kind}[]" for kind in (*kinds.values(), "bigint"))
    keys = f"unnest({arrays}) WITH ORDINALITY AS told({columns}, place)"
    same = " AND ".join(f"one.{name} = told.{name}" for name in kinds)
    # One subquery for each key: a join of many keys would read the whole table.
    find = f"SELECT (SELECT id FROM {table} AS one WHERE {same}) FROM {keys} ORDER BY told.place"  # noqa: S608
    order = ", ".join(str(position) for position in range(1, len(kinds) + 1))
    make = (
        f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {keys} ORDER BY {order} "  # noqa: S608
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
    """Return the id of each series, created within the caller's transaction if missing."""
    return _ensure(keys, SERIES_FIND, SERIES_MAKE)


def key_series_ensure(keys: Collection[KeySeriesKey]) -> dict[KeySeriesKey, int]:
    return _ensure(keys, KEY_SERIES_FIND, KEY_SERIES_MAKE)


def _ensure(keys: Collection[K], find: str, make: str) -> dict[K, int]:
    ids_by_key = _found(list(keys), find)
    missing = [key for key in keys if key not in ids_by_key]
    if missing:
        with connection.cursor() as cursor:
            cursor.execute(make, series_columns(missing))
        ids_by_key |= _found(missing, find)
    return ids_by_key


def _found(keys: Sequence[K], find: str) -> dict[K, int]:
    if not keys:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(find, series_columns(keys))
        ids = cursor.fetchall()
    return {key: id_ for key, (id_,) in zip(keys, ids, strict=True) if id_ is not None}


def series_columns(keys: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*keys, strict=True)]
