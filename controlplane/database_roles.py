"""The database's two logins: the owner has the tables and migrates them, the application reads and writes rows.

`roles_make` needs a superuser, and `grants_apply` the owner; both may run again at any time. Without an owner's URL
there is one login for all of it, as before.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

URL: Final = "LUMINET_DATABASE_URL"
OWNER_URL: Final = "LUMINET_DATABASE_OWNER_URL"
SUPERUSER_URL: Final = "LUMINET_DATABASE_SUPERUSER_URL"
CONNECT_SECONDS: Final = 5
PLAIN: Final = "LOGIN NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS"
DATABASE_AS_OURS: Final = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER builtin LOCALE 'C.UTF-8'"
# What the application may not do with these tables, beyond what no application may do with any.
REVOKED: Final = {
    "tenants_auditrecord": "UPDATE, DELETE",
    "tenants_audithead": "DELETE",
    "tenants_policyrevision": "UPDATE",
    "django_migrations": "INSERT, UPDATE, DELETE",
}
FUNCTIONS: Final = ("luminet_minutes_make(text, date)", "luminet_minutes_drop(date)")
_RELATIONS: Final = """
SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'S') AND pg_get_userbyid(c.relowner) <> %s
  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i', 'e')
                  AND d.classid = 'pg_class'::regclass AND c.relkind = 'S')
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
    """The roles cannot be made as the settings ask: what is wrong, and what to do."""


def login_of(url: str) -> str:
    return str(conninfo_to_dict(url).get("user") or "")


def owner_instead(environ: MutableMapping[str, str]) -> str | None:
    """Let this process work with the owner's URL. Returns the application's login; None: there is one login."""
    owner = environ.pop(OWNER_URL, None)
    if not owner:
        return None
    application = login_of(environ[URL])
    environ[URL] = owner
    return application


def roles_make(*, superuser_url: str, owner_url: str, application_url: str) -> None:
    """Both logins with their passwords, the database, and everything in it given to the owner."""
    owner, application, superuser = login_of(owner_url), login_of(application_url), login_of(superuser_url)
    if len({owner, application, superuser}) < 3:
        named = f"{SUPERUSER_URL}: {superuser}, {OWNER_URL}: {owner}, {URL}: {application}"
        raise RolesProblem(f"three different logins are needed, found {named}: name the owner and the application anew")
    place: dict[str, Any] = dict(conninfo_to_dict(superuser_url))
    name = str(conninfo_to_dict(application_url)["dbname"])
    with _connected(make_conninfo(**place)) as server:
        _role_make(server, owner_url, f"{PLAIN} CREATEDB")
        _role_make(server, application_url, f"{PLAIN} NOCREATEDB")
        _memberships_set(server, owner, application)
        _database_make(server, name, owner)
    with _connected(make_conninfo(**{**place, "dbname": name})) as database, database.transaction():
        _hand_over(database, owner)
        _do(database, "SET LOCAL ROLE {}", sql.Identifier(owner))
        grants_apply(database.cursor(), application=application)


def roles_make_of(environ: Mapping[str, str]) -> None:
    """With the three logins that the environment names."""
    missing = [name for name in (URL, OWNER_URL, SUPERUSER_URL) if not environ.get(name)]
    if missing:
        raise RolesProblem(f"{', '.join(missing)}: is not set")
    try:
        roles_make(superuser_url=environ[SUPERUSER_URL], owner_url=environ[OWNER_URL], application_url=environ[URL])
    except psycopg.Error as error:
        raise RolesProblem(_reason(error)) from None


def grants_apply(cursor: Any, *, application: str) -> None:
    """As the owner, within a transaction: what the application may do with the tables that there are and will be."""
    for statement in _grants(sql.Identifier(application)):
        cursor.execute(statement)
    for table, rights in REVOKED.items():
        if _is_there(cursor, "to_regclass", f"public.{table}"):
            words = "REVOKE {} ON public.{} FROM {}"
            cursor.execute(sql.SQL(words).format(sql.SQL(rights), sql.Identifier(table), sql.Identifier(application)))
    for function in FUNCTIONS:
        if _is_there(cursor, "to_regprocedure", f"public.{function}"):
            cursor.execute(f"REVOKE ALL ON FUNCTION public.{function} FROM PUBLIC")  # a backup leaves rights out
            words = f"GRANT EXECUTE ON FUNCTION public.{function} TO {{}}"
            cursor.execute(sql.SQL(words).format(sql.Identifier(application)))


def application_grant(application: str | None) -> None:
    """Let the application use what was migrated. None: it owns the tables."""
    from django.db import connection, transaction

    if application is not None:
        with transaction.atomic(), connection.cursor() as cursor:
            grants_apply(cursor, application=application)


def tables_owned(cursor: Any) -> list[str]:
    """Append-only tables that this login owns, and so can alter and drop."""
    cursor.execute(_OWNED, [[name for name in REVOKED if name != "django_migrations"]])
    return sorted(name for (name,) in cursor.fetchall())


def _grants(application: sql.Identifier) -> Iterator[sql.Composed]:
    for words in (
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "REVOKE CREATE ON SCHEMA public FROM {}",
        "GRANT USAGE ON SCHEMA public TO {}",
        "REVOKE TRUNCATE, REFERENCES, TRIGGER ON ALL TABLES IN SCHEMA public FROM {}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}",
        "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {}",
    ):
        yield sql.SQL(words).format(application)


def _is_there(cursor: Any, lookup: str, name: str) -> bool:
    cursor.execute(f"SELECT {lookup}(%s) IS NOT NULL", [name])
    return bool(cursor.fetchone()[0])


def _role_make(server: "psycopg.Connection[Any]", url: str, rights: str) -> None:
    name, password = login_of(url), str(conninfo_to_dict(url).get("password") or "")
    exists = server.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is not None
    _do(server, f"{'ALTER' if exists else 'CREATE'} ROLE {{}} {rights}", sql.Identifier(name))
    if password:  # hashed here, so that no log of the server has it
        hashed = server.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        _do(server, "ALTER ROLE {} PASSWORD {}", sql.Identifier(name), sql.Literal(hashed))


def _memberships_set(server: "psycopg.Connection[Any]", owner: str, application: str) -> None:
    """None for the application. The owner is a member of it, to see and end its sessions before a restore."""
    held = server.execute(
        "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = %s::regrole", [_quoted(application)]
    ).fetchall()
    for (role,) in held:
        _do(server, f"REVOKE {role} FROM {{}}", sql.Identifier(application))
    _do(server, "GRANT {} TO {}", sql.Identifier(application), sql.Identifier(owner))


def _database_make(server: "psycopg.Connection[Any]", name: str, owner: str) -> None:
    exists = server.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is not None
    words = "ALTER DATABASE {} OWNER TO {}" if exists else f"CREATE DATABASE {{}} OWNER {{}} {DATABASE_AS_OURS}"
    _do(server, words, sql.Identifier(name), sql.Identifier(owner))


def _hand_over(database: "psycopg.Connection[Any]", owner: str) -> None:
    _do(database, "ALTER SCHEMA public OWNER TO {}", sql.Identifier(owner))
    for kind, query in (("TABLE", _RELATIONS), ("ROUTINE", _ROUTINES)):
        for (name,) in database.execute(query, [owner]).fetchall():  # quoted by PostgreSQL
            _do(database, f"ALTER {kind} {name} OWNER TO {{}}", sql.Identifier(owner))


def _connected(conninfo: str) -> "psycopg.Connection[Any]":
    try:
        return psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)
    except psycopg.OperationalError as error:
        raise RolesProblem(f"{SUPERUSER_URL}: {_reason(error)}") from None


def _do(connection: "psycopg.Connection[Any]", words: str, *parts: sql.Composable) -> None:
    try:
        connection.execute(sql.SQL(words).format(*parts))
    except psycopg.Error as error:
        raise RolesProblem(f"{words.split(' {')[0]}: {_reason(error)}") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
