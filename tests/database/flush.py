"""Empty the test database after a test that committed: Django's `flush`, without what costs most of its time.

`flush` truncates all tables, which makes new files for each and its indexes, however few were written, and then makes
all content types and permissions again. Here only tables with rows are emptied, row by row.
"""

import functools

from django.db import connection, transaction

KEPT = frozenset({"django_migrations", "django_content_type", "auth_permission"})  # no test changes them
# Their triggers refuse what is done here, and are on again before anybody else sees the tables.
APPEND_ONLY = ("tenants_auditrecord", "tenants_policyrevision")


def written_tables_empty() -> None:
    """Empty every table that has a row; sequences go on, as after Django's own flush of a test."""
    if tables := _written_tables():
        guarded = [table for table in APPEND_ONLY if table in tables]
        statements = (
            *(f"ALTER TABLE {table} DISABLE TRIGGER USER" for table in guarded),
            *(f"DELETE FROM {connection.ops.quote_name(table)}" for table in tables),
            "SET CONSTRAINTS ALL IMMEDIATE",  # no table is altered while checks of its rows are still to come
            *(f"ALTER TABLE {table} ENABLE TRIGGER USER" for table in guarded),
        )
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("; ".join(statements))


def _written_tables() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_question())
        return [table for (table,) in cursor.fetchall()]


@functools.cache
def _question() -> str:
    """Return one query for the names of all tables that have a row."""
    tables = sorted(set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT)
    assert tables
    return " UNION ALL ".join(
        f"SELECT '{table}' WHERE EXISTS (SELECT FROM {connection.ops.quote_name(table)})" for table in tables
    )
