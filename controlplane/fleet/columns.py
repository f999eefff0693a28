"""Change many rows of a table in one statement.

New values are sent as columns, which is cheap for thousands of rows.
"""

from collections.abc import Sequence
from typing import Any

from django.db import connection, models

from engine_agent.contracts.protocol import canonical_json


def json_column(value: Any) -> str:
    return canonical_json(value).decode()


def columns_sql(columns: str) -> tuple[str, str]:
    """Return the names in a text like `id bigint, state text`, and the placeholders that make a table of arrays."""
    pairs = [column.split() for column in columns.split(", ")]
    return ", ".join(name for name, _ in pairs), ", ".join(f"%s::{kind}[]" for _, kind in pairs)


def rows_update(model: type[models.Model], columns: str, rows: Sequence[Sequence[Any]], **same: Any) -> None:
    """Set these columns of each row; the first one identifies the row. Columns in `same` get one value in all rows."""
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
