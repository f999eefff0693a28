"""Everything in the test's database as text, as somebody reads it who has a copy."""

from django.db import connection
from psycopg import sql


def database_text() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename")
        tables = [name for (name,) in cursor.fetchall()]
        lines = []
        for table in tables:
            cursor.execute(sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(table)))
            lines += [f"{table} {row}" for (row,) in cursor.fetchall()]
    return "\n".join(lines)
