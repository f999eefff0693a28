"""The database's check, and read access for the checks of other areas."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from controlplane.doctor.context import Context, shared
from controlplane.doctor.finding import Finding, NotExamined, broken, first_line, ok, warning

SECONDS = 3  # it is queried once, over a connection with a short timeout
BUSY_SHARE = 0.9
SLOW_MILLISECONDS = 100.0
_FACTS = """
SELECT current_setting('server_version_num')::int, current_setting('max_connections')::int, pg_is_in_recovery(),
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""


@dataclass(frozen=True, slots=True)
class DatabaseSeen:
    """Facts about the database. `problem`: why it did not answer; the other fields are then meaningless."""

    problem: str | None = None
    milliseconds: float = 0.0
    version: int = 0
    ahead_seconds: float = 0.0  # its clock minus ours
    connections: int = 0
    most_connections: int = 0
    is_replica: bool = False


@shared
def database_seen(context: Context) -> DatabaseSeen:
    url = context.environment.database_url
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=SECONDS, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {SECONDS * 1000}")
            version, most, is_replica, count = connection.execute(_FACTS).fetchone() or (0, 0, False, 0)
            began, steady = time.time(), time.monotonic()
            row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
            seconds = time.monotonic() - steady
    except psycopg.Error as error:
        return DatabaseSeen(problem=first_line(error))
    database_time = float(row[0]) if row else began
    return DatabaseSeen(None, seconds * 1000, version, database_time - (began + seconds / 2), count, most, is_replica)


def answering_database(context: Context) -> DatabaseSeen:
    database_state = database_seen(context)
    if database_state.problem is not None:
        raise NotExamined("the database does not answer")
    return database_state


def database(context: Context) -> Iterator[Finding]:
    settings = "LUMINET_DATABASE_URL has its address, user, password and name"
    do = context.place.log_advice("postgres") or f"see that the server runs, and that {settings}"
    yield from database_findings(database_seen(context), do=do)


def database_findings(database_state: DatabaseSeen, *, do: str) -> Iterator[Finding]:
    if database_state.problem is not None:
        yield broken("database", f"The database does not answer: {database_state.problem}", do)
        return
    if database_state.milliseconds > SLOW_MILLISECONDS:
        do = "put database and control plane into one network, or look what the server is busy with"
        yield warning("database", f"The database takes {database_state.milliseconds:.0f} ms for an empty question", do)
    else:
        yield ok("database", f"The database answers in {database_state.milliseconds:.0f} ms")
    if database_state.is_replica:
        do = "point LUMINET_DATABASE_URL at the primary"
        yield broken("database-role", "The database is a replica, which nobody can write to", do)
    if database_state.most_connections and database_state.connections >= BUSY_SHARE * database_state.most_connections:
        says = f"{database_state.connections} of the database's {database_state.most_connections} connections are taken"
        yield warning("connections", says, "raise max_connections, or run fewer web and worker processes")


@contextmanager
def django_models(context: Context) -> Iterator[datetime]:
    """Let the application's models and selectors read the database; nothing writes. Yield the current time."""
    answering_database(context)
    _django_setup(context)
    from django.db import connection

    try:
        yield datetime.now(UTC)
    finally:
        connection.close()  # each check has its own thread, and so its own connection


@shared
def _django_setup(context: Context) -> None:
    """Set Django up, once the database has answered: Django's settings need every variable."""
    os.environ.update(context.place.environ)
    os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings.django"
    os.environ["LUMINET_LOG_LEVEL"] = "ERROR"  # errors become findings here
    import django

    django.setup()
