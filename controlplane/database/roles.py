"""The database's two logins: the owner owns and migrates the tables, the application reads and writes rows.

`roles_make` needs a superuser, `grants_apply` the owner; both can be repeated at any time. Without an owner's URL, one
login does everything.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

URL: Final = "LUMINET_DATABASE_URL"
OWNER_URL: Final = "LUMINET_DATABASE_OWNER_URL"
SUPERUSER_URL: Final = "LUMINET_DATABASE_SUPERUSER_URL"
CONNECT_SECONDS: Final = 5
PLAIN: Final = "LOGIN NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS"
LOCK_MS: Final = 500  # queries queued behind ours wait as long; below `deadlock_timeout`, so ours fails
LOCK_TRIES: Final = 40
LOCK_PAUSE_SECONDS: Final = 0.5  # between two tries, for the queries that waited behind the first
DATABASE_AS_OURS: Final = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER builtin LOCALE 'C.UTF-8'"
# Rights that the application lacks on these tables, in addition to those that no application has.
REVOKED: Final = {
    "tenants_auditrecord": "UPDATE, DELETE",
    "tenants_audithead": "DELETE",
    "tenants_policyrevision": "UPDATE",
    "django_migrations": "INSERT, UPDATE, DELETE",
}
FUNCTIONS: Final = ("luminet_minutes_make(text, date)", "luminet_minutes_drop(date)")
# Includes the sequences of each table, which change owners with it.
_RELATIONS: Final = """
SELECT c.oid, format('%%I.%%I', n.nspname, c.relname), c.relname, c.relkind::text,
       ARRAY(SELECT s.oid::regclass::text FROM pg_depend AS d JOIN pg_class AS s ON s.oid = d.objid
             WHERE s.relkind = 'S' AND d.refobjid = c.oid AND d.classid = 'pg_class'::regclass
               AND d.deptype IN ('a', 'i'))
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'S') AND pg_get_userbyid(c.relowner) <> %s
  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i', 'e')
                  AND d.classid = 'pg_class'::regclass AND c.relkind = 'S')
ORDER BY c.relname DESC
"""
_HOLDERS: Final = """
SELECT DISTINCT a.pid, a.usename::text, a.state FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.relation = ANY(%s) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.granted AND l.pid <> pg_backend_pid() ORDER BY 1
"""
_ROUTINES: Final = """
SELECT p.oid::regprocedure::text FROM pg_proc AS p
WHERE p.pronamespace = 'public'::regnamespace AND pg_get_userbyid(p.proowner) <> %s
  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')
"""
_OWNED: Final = """
SELECT c.relname FROM pg_class AS c
WHERE c.relname = ANY(%s) AND c.relnamespace = 'public'::regnamespace AND pg_has_role(current_user, c.relowner, 'USAGE')
"""


class RolesProblem(Exception):
    """The roles cannot be made with these settings. The message says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class _Relation:
    """A table, view or sequence. PostgreSQL has quoted `name` and `sequences`."""

    oid: int
    name: str
    table: str
    kind: str
    sequences: tuple[str, ...]

    @property
    def is_partitioned(self) -> bool:
        return self.kind == "p"


def login_of(url: str) -> str:
    return str(conninfo_to_dict(url).get("user") or "")


def owner_instead(environ: MutableMapping[str, str]) -> str | None:
    """Make this process use the owner's URL. Return the application's login, or None if there is one login only."""
    owner = environ.get(OWNER_URL)
    if not owner:
        environ.pop(OWNER_URL, None)
        return None
    application = _named(URL, environ[URL])
    del environ[OWNER_URL]
    environ[URL] = owner
    return application


def _named(setting: str, url: str) -> str:
    """Return the URL's login. Raise RolesProblem without one: the role to grant to is then unknown."""
    if login := login_of(url):
        return login
    raise RolesProblem(
        f"{setting}: names no login: write it before the host, as in postgresql://luminet@/luminet?host=…"
    )


def roles_make(*, superuser_url: str, owner_url: str, application_url: str) -> None:
    """Create both logins with their passwords and the database, and give everything in it to the owner."""
    owner, application = _named(OWNER_URL, owner_url), _named(URL, application_url)
    superuser = login_of(superuser_url)
    if len({owner, application, superuser}) < 3:
        settings = f"{SUPERUSER_URL}: {superuser}, {OWNER_URL}: {owner}, {URL}: {application}"
        raise RolesProblem(
            f"three different logins are needed, found {settings}: name the owner and the application anew"
        )
    parameters: dict[str, Any] = dict(conninfo_to_dict(superuser_url))
    name = str(conninfo_to_dict(application_url)["dbname"])
    with _connected(make_conninfo(**parameters)) as server:
        _role_make(server, owner_url, f"{PLAIN} CREATEDB")
        _role_make(server, application_url, f"{PLAIN} NOCREATEDB")
        _memberships_set(server, owner, application)
        _database_make(server, name, owner)
    with _connected(make_conninfo(**{**parameters, "dbname": name})) as database:
        _hand_over(database, owner, application)
        with database.transaction():
            _do(database, "SET LOCAL ROLE {}", sql.Identifier(owner))
            grants_apply(database.cursor(), application=application)


def roles_make_of(environ: Mapping[str, str]) -> None:
    """Call `roles_make` with the three URLs of the environment."""
    missing = [name for name in (URL, OWNER_URL, SUPERUSER_URL) if not environ.get(name)]
    if missing:
        raise RolesProblem(f"{', '.join(missing)}: is not set")
    try:
        roles_make(superuser_url=environ[SUPERUSER_URL], owner_url=environ[OWNER_URL], application_url=environ[URL])
    except psycopg.Error as error:
        raise RolesProblem(_reason(error)) from None


def grants_apply(cursor: Any, *, application: str) -> None:
    """Grant the application its rights on current and future tables. Call it as the owner, within a transaction."""
    for statement in (*_grants(_SCHEMA_GRANTS, application), *_grants(_TABLE_GRANTS, application)):
        cursor.execute(statement)
    for table in REVOKED:
        if _is_there(cursor, "to_regclass", f"public.{table}"):
            cursor.execute(_revocation(table, application))
    _functions_grant(cursor, application)


def application_grant(application: str | None) -> None:
    """Grant the application its rights after a migration. None: it owns the tables; only revoke PUBLIC's rights."""
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        if application is not None:
            grants_apply(cursor, application=application)
        else:
            _strangers_refuse(cursor)


def tables_owned(cursor: Any) -> list[str]:
    """Return the append-only tables that this login owns and so can alter and drop."""
    cursor.execute(_OWNED, [[name for name in REVOKED if name != "django_migrations"]])
    return sorted(name for (name,) in cursor.fetchall())


_SCHEMA_GRANTS: Final = (
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    "REVOKE CREATE ON SCHEMA public FROM {}",
    "GRANT USAGE ON SCHEMA public TO {}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {}",
)
_TABLE_GRANTS: Final = (
    "REVOKE TRUNCATE, REFERENCES, TRIGGER ON ALL TABLES IN SCHEMA public FROM {}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}",
    "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {}",
)


def _grants(statements: Iterable[str], application: str) -> Iterator[sql.Composed]:
    for words in statements:
        yield sql.SQL(words).format(sql.Identifier(application))


def _revocation(table: str, application: str) -> sql.Composed:
    words = "REVOKE {} ON public.{} FROM {}"
    return sql.SQL(words).format(sql.SQL(REVOKED[table]), sql.Identifier(table), sql.Identifier(application))


def _functions_grant(cursor: Any, application: str) -> None:
    for function in FUNCTIONS:
        if _is_there(cursor, "to_regprocedure", f"public.{function}"):
            cursor.execute(f"REVOKE ALL ON FUNCTION public.{function} FROM PUBLIC")  # a backup does not contain rights
            words = f"GRANT EXECUTE ON FUNCTION public.{function} TO {{}}"
            cursor.execute(sql.SQL(words).format(sql.Identifier(application)))


def _strangers_refuse(cursor: Any) -> None:
    """Revoke PUBLIC's rights, which a restore grants by default, on functions that this login owns."""
    owned = "SELECT 1 FROM pg_proc WHERE oid = to_regprocedure(%s) AND pg_has_role(current_user, proowner, 'USAGE')"
    for function in FUNCTIONS:
        cursor.execute(owned, [f"public.{function}"])
        if cursor.fetchone() is not None:
            cursor.execute(f"REVOKE ALL ON FUNCTION public.{function} FROM PUBLIC")


def _is_there(cursor: Any, lookup: str, name: str) -> bool:
    cursor.execute(f"SELECT {lookup}(%s) IS NOT NULL", [name])
    return bool(cursor.fetchone()[0])


def _role_make(server: "psycopg.Connection[Any]", url: str, rights: str) -> None:
    name, password = login_of(url), str(conninfo_to_dict(url).get("password") or "")
    exists = server.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is not None
    _do(server, f"{'ALTER' if exists else 'CREATE'} ROLE {{}} {rights}", sql.Identifier(name))
    if password:  # hashed here, so that the server's log never contains it
        hashed = server.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        _do(server, "ALTER ROLE {} PASSWORD {}", sql.Identifier(name), sql.Literal(hashed))


def _memberships_set(server: "psycopg.Connection[Any]", owner: str, application: str) -> None:
    """Revoke the application's memberships. Make the owner its member, to see and end its sessions before a restore."""
    memberships = server.execute(
        "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = %s::regrole", [_quoted(application)]
    ).fetchall()
    for (role,) in memberships:
        _do(server, f"REVOKE {role} FROM {{}}", sql.Identifier(application))
    _do(server, "GRANT {} TO {}", sql.Identifier(application), sql.Identifier(owner))


def _database_make(server: "psycopg.Connection[Any]", name: str, owner: str) -> None:
    exists = server.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is not None
    words = "ALTER DATABASE {} OWNER TO {}" if exists else f"CREATE DATABASE {{}} OWNER {{}} {DATABASE_AS_OURS}"
    _do(server, words, sql.Identifier(name), sql.Identifier(owner))


def _hand_over(database: "psycopg.Connection[Any]", owner: str, application: str) -> None:
    """Hand everything over to the owner in short transactions, each of which also grants the application its rights.

    First all partitioned tables together, with the schema and the function that creates daily partitions: it runs as
    its own owner, who must own these, too. Then each other table alone.
    """
    relations = [
        _Relation(oid, name, table, kind, tuple(sequences))
        for oid, name, table, kind, sequences in database.execute(_RELATIONS, [owner]).fetchall()
    ]
    parents = [relation for relation in relations if relation.is_partitioned]
    _in_short(database, parents, partial(_days_hand_over, database, parents, owner, application))
    for relation in relations:
        if not relation.is_partitioned:
            with suppress(errors.UndefinedTable):  # a daily partition that was dropped in the meantime
                _in_short(database, [relation], partial(_relation_hand_over, database, relation, owner, application))


def _days_hand_over(
    database: "psycopg.Connection[Any]", parents: Iterable[_Relation], owner: str, application: str
) -> None:
    for relation in parents:
        _relation_hand_over(database, relation, owner, application)
    _do(database, "ALTER SCHEMA public OWNER TO {}", sql.Identifier(owner))
    for (name,) in database.execute(_ROUTINES, [owner]).fetchall():  # PostgreSQL has quoted the names
        _do(database, f"ALTER ROUTINE {name} OWNER TO {{}}", sql.Identifier(owner))
    _do(database, "SET LOCAL ROLE {}", sql.Identifier(owner))
    for statement in _grants(_SCHEMA_GRANTS, application):
        database.execute(statement)
    _functions_grant(database.cursor(), application)


def _relation_hand_over(database: "psycopg.Connection[Any]", relation: _Relation, owner: str, application: str) -> None:
    grantee = sql.Identifier(application)
    _do(database, f"ALTER TABLE {relation.name} OWNER TO {{}}", sql.Identifier(owner))
    if relation.kind == "S":
        _do(database, f"GRANT USAGE, SELECT ON SEQUENCE {relation.name} TO {{}}", grantee)
        return
    _do(database, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {relation.name} TO {{}}", grantee)
    for sequence in relation.sequences:
        _do(database, f"GRANT USAGE, SELECT ON SEQUENCE {sequence} TO {{}}", grantee)
    if relation.table in REVOKED:
        database.execute(_revocation(relation.table, application))


def _in_short(database: "psycopg.Connection[Any]", relations: Sequence[_Relation], change: Callable[[], None]) -> None:
    """Run the change in a transaction that waits for its locks only briefly, because other queries queue behind it."""
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            with database.transaction():
                _do(database, "SET LOCAL lock_timeout = {}", sql.Literal(LOCK_MS))
                _do(database, "SET LOCAL deadlock_timeout = {}", sql.Literal(100))  # a vacuum then yields to it
                change()
            return
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            if not tries_left:
                raise RolesProblem(_locked(database, relations)) from None
            time.sleep(LOCK_PAUSE_SECONDS)


def _locked(database: "psycopg.Connection[Any]", relations: Sequence[_Relation]) -> str:
    holders = database.execute(_HOLDERS, [[relation.oid for relation in relations]]).fetchall()
    by = ", ".join(f"process {pid} of {login} ({state})" for pid, login, state in holders) or "another transaction"
    return (
        f"{', '.join(relation.table for relation in relations)}: locked by {by}, and not free in {LOCK_TRIES} tries. "
        "Nothing is lost and the application goes on: wait for that transaction or end it "
        "(SELECT pg_terminate_backend(PID)), then run `luminet run roles` again"
    )


def _connected(conninfo: str) -> "psycopg.Connection[Any]":
    try:
        return psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)
    except psycopg.OperationalError as error:
        raise RolesProblem(f"{SUPERUSER_URL}: {_reason(error)}") from None


def _do(connection: "psycopg.Connection[Any]", words: str, *parts: sql.Composable) -> None:
    try:
        connection.execute(sql.SQL(words).format(*parts))
    except (errors.LockNotAvailable, errors.DeadlockDetected, errors.UndefinedTable):
        raise  # a retry may succeed
    except psycopg.Error as error:
        raise RolesProblem(f"{words.split(' {')[0]}: {_reason(error)}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
