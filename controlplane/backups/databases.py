"""Create, rename and drop databases and count their connections, over a connection to another database."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from controlplane.backups.errors import BackupProblem
from controlplane.database.roles import DATABASE_AS_OURS

BESIDE = "postgres"  # every server has it
_CONNECTED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = %s AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


def database_name(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def with_database(url: str, name: str) -> str:
    """Return the URL of another database on the same server, with the same login. Settings need a URL."""
    head, separator, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}{separator}{query}"


class Server:
    """A connection to the server, as `server_open` yields it."""

    def __init__(self, connection: "psycopg.Connection[tuple[object, ...]]") -> None:
        self._connection = connection

    def has(self, name: str) -> bool:
        return self._connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is not None

    def connected(self, name: str) -> int:
        """Return the number of client connections to the database. PostgreSQL's own workers yield by themselves."""
        row = self._connection.execute(_CONNECTED, [name]).fetchone()
        assert row is not None
        return int(str(row[0]))

    def create(self, name: str) -> None:
        """Create the database with Luminet's encoding and locale, whatever the server's defaults are."""
        self._do(sql.SQL("CREATE DATABASE {} " + DATABASE_AS_OURS).format(sql.Identifier(name)))

    def drop(self, name: str) -> None:
        self._do(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def rename(self, name: str, to: str) -> None:
        self._do(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(name), sql.Identifier(to)))

    def _do(self, statement: sql.Composed) -> None:
        try:
            self._connection.execute(statement)
        except psycopg.Error as problem:
            reason, _, _ = str(problem).strip().partition("\n")
            raise BackupProblem(f"{statement.as_string(self._connection)}: {reason}") from None


@contextmanager
def server_open(url: str) -> Iterator[Server]:
    parameters: dict[str, Any] = {**conninfo_to_dict(url), "dbname": BESIDE}
    try:
        connection = psycopg.connect(make_conninfo(**parameters), autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as problem:
        reason, _, _ = str(problem).strip().partition("\n")
        raise BackupProblem(f"the database does not answer: {reason}") from None
    with connection:
        yield Server(connection)


def nobody_check(server: Server, name: str) -> None:
    """Raise BackupProblem if clients are connected: they would write to the old database or read a half-made one."""
    if count := server.connected(name):
        are_open = "connection is open" if count == 1 else "connections are open"
        raise BackupProblem(f"{count} {are_open} to the database {name}: stop web, worker, beat and demo-traffic first")


def aside_name(name: str, now: datetime) -> str:
    """Return the name under which the old database is kept, within PostgreSQL's 63 bytes."""
    return f"{name[:40]}_before_{now:%Y%m%d_%H%M%S}"
