"""Many rows of one table changed in one statement: what is new comes as columns, which is cheap for thousands."""

from collections.abc import Sequence
from typing import Any

from django.db import connection, models

from engine_agent.contracts.protocol import canonical_json


def json_column(value: Any) -> str:
    """A value as a column of JSON takes it."""
    return canonical_json(value).decode()


def columns_sql(columns: str) -> tuple[str, str]:
    """`id bigint, state text` as the names of a table of news, and as placeholders to make it of arrays."""
    pairs = [one.split() for one in columns.split(", ")]
    return ", ".join(name for name, _ in pairs), ", ".join(f"%s::{kind}[]" for _, kind in pairs)


def rows_update(model: type[models.Model], columns: str, rows: Sequence[Sequence[Any]], **same: Any) -> None:
    """Set the columns, of which the first says which row it is, and for all of them what is `same`."""
    if not rows:
        return
    names, arrays = columns_sql(columns)
    key, *changed = names.split(", ")
    assignments = [*(f'"{name}" = new."{name}"' for name in changed), *(f'"{name}" = %s' for name in same)]
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {model._meta.db_table} AS old SET {', '.join(assignments)} "  # noqa: S608  # names are ours
            f'FROM unnest({arrays}) AS new({names}) WHERE old."{key}" = new."{key}"',
            [*same.values(), *map(list, zip(*rows, strict=True))],
        )
