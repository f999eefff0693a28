"""The application's login on the real database: it serves, and cannot touch what the owner guards."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import errors, sql
from pytest_django import DjangoDbBlocker

from controlplane.analytics.partitions import PARENTS, partition_name
from controlplane.backups.restoring import schema_bring_up
from controlplane.database import roles as database_roles
from controlplane.database.roles import RolesProblem, grants_apply, roles_make, roles_make_of, tables_owned
from controlplane.stack.services import database_url
from tests.plugin import POSTGRES_PORT
from tests.support.passwords import POSTGRES_PASSWORD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db  # so that there is a database to copy
OLD, NAME = "luminet", "luminet_with_roles"  # the login that an installation of before has; the database
OWNER, APPLICATION = "tests_owner", "tests_application"
DAY, NEXT_DAY = date(2031, 2, 3), date(2031, 2, 4)
GUIDE = Path(__file__).parents[2] / "docs" / "production.md"
RECORD = (
    "INSERT INTO tenants_auditrecord (seq, at, actor_kind, actor_id, actor_name, verb, target, before, after, address,"
    " request_id, hash) VALUES (%s, now(), 'system', '', '', 'x', '', 'null', 'null', '', '', '')"
)


@dataclass(frozen=True, slots=True)
class Logins:
    superuser: str
    old: str
    owner: str
    application: str

    def make(self) -> None:
        roles_make(superuser_url=self.superuser, owner_url=self.owner, application_url=self.application)


def _url(login: str, password: str = POSTGRES_PASSWORD, name: str = NAME) -> str:
    return database_url(POSTGRES_PORT, password, login=login, name=name)


@pytest.fixture(scope="module")
def logins(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Logins]:
    """A database as an installation with one login has it, and what it takes to give it two."""
    urls = Logins(_url("postgres", name="postgres"), _url(OLD), _url(OWNER), _url(APPLICATION))
    with django_db_blocker.unblock():
        template = connection.settings_dict["NAME"]
        connection.close()  # no database with a session in it can be copied
    with psycopg.connect(urls.superuser, autocommit=True) as server:
        copy = "CREATE DATABASE {} OWNER {} TEMPLATE {}"
        server.execute(sql.SQL(copy).format(*map(sql.Identifier, (NAME, OLD, template))))
        try:
            with connected(_url("postgres")) as database:  # as in containers, where one login was the superuser
                database.execute("ALTER TABLE tenants_organisation OWNER TO postgres")
                database.execute("GRANT EXECUTE ON FUNCTION luminet_minutes_drop(date) TO PUBLIC")  # as after a restore
            yield urls
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(NAME)))
            for role in (OWNER, APPLICATION):
                server.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))


@pytest.fixture
def made(logins: Logins) -> Logins:
    logins.make()
    return logins


@contextmanager
def connected(url: str) -> Iterator["psycopg.Connection[Any]"]:
    with psycopg.connect(url, autocommit=True) as open_connection:
        yield open_connection


def test_one_login_owns_what_it_could_alter(logins: Logins) -> None:
    with connected(logins.old) as old:
        assert "tenants_auditrecord" in tables_owned(old.cursor())
    logins.make()
    for url in (logins.old, logins.application):
        with connected(url) as login:
            assert tables_owned(login.cursor()) == []
    owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    with connected(logins.owner) as owner:
        assert owner.execute(owners).fetchall() == [(OWNER,)]


def test_roles_made_again_change_nothing(made: Logins) -> None:
    rights = (
        "SELECT relname, relowner, relacl::text FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    with connected(made.owner) as owner:
        before = owner.execute(rights).fetchall()
        made.make()
        assert owner.execute(rights).fetchall() == before


def test_changed_passwords_let_in_afterwards(made: Logins) -> None:
    changed = _url(APPLICATION, "another")
    roles_make(superuser_url=made.superuser, owner_url=made.owner, application_url=changed)
    with connected(changed) as application:
        assert application.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(made.application)


def test_two_logins_of_one_name_are_refused(logins: Logins) -> None:
    with pytest.raises(RolesProblem, match="three different logins are needed"):
        roles_make(superuser_url=logins.superuser, owner_url=logins.owner, application_url=logins.owner)


@pytest.mark.parametrize("setting", ["LUMINET_DATABASE_URL", "LUMINET_DATABASE_OWNER_URL"])
def test_a_url_without_a_login_is_refused(logins: Logins, setting: str) -> None:
    urls = {"LUMINET_DATABASE_URL": logins.application, "LUMINET_DATABASE_OWNER_URL": logins.owner}
    urls[setting] = f"postgresql:///{NAME}?host=/run/postgresql"
    with pytest.raises(RolesProblem, match=f"^{setting}: names no login"):
        roles_make_of({**urls, "LUMINET_DATABASE_SUPERUSER_URL": logins.superuser})


def test_a_missing_database_is_made_for_the_owner(made: Logins) -> None:
    """With nothing in it yet: `run migrate` comes next."""
    fresh = f"{NAME}_fresh"
    urls = Logins(made.superuser, made.old, _url(OWNER, name=fresh), _url(APPLICATION, name=fresh))
    urls.make()
    try:
        with connected(urls.owner) as owner:
            owner.execute("CREATE TABLE public.later (id bigint GENERATED ALWAYS AS IDENTITY, word text)")
        with connected(urls.application) as application:
            application.execute("INSERT INTO later (word) VALUES ('x')")
            with pytest.raises(errors.InsufficientPrivilege):
                application.execute("DROP TABLE later")
    finally:
        with connected(made.superuser) as server:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(fresh)))


REFUSED = (
    "UPDATE tenants_auditrecord SET verb = 'x'",
    "DELETE FROM tenants_auditrecord",
    "TRUNCATE tenants_auditrecord",
    "DROP TABLE tenants_auditrecord",
    "ALTER TABLE tenants_auditrecord DISABLE TRIGGER USER",
    "ALTER TABLE tenants_auditrecord ADD COLUMN extra text",
    f"ALTER TABLE tenants_auditrecord OWNER TO {APPLICATION}",
    "DROP TRIGGER audit_is_append_only ON tenants_auditrecord",
    "CREATE TRIGGER mine BEFORE INSERT ON tenants_auditrecord FOR EACH ROW EXECUTE FUNCTION luminet_refuse_change()",
    "CREATE RULE mine AS ON INSERT TO tenants_auditrecord DO INSTEAD NOTHING",
    "BEGIN; LOCK TABLE tenants_auditrecord IN ACCESS EXCLUSIVE MODE",
    "DELETE FROM tenants_audithead",
    "TRUNCATE tenants_audithead",
    "DROP TABLE tenants_audithead",
    "UPDATE tenants_policyrevision SET number = 1",
    "TRUNCATE tenants_policyrevision CASCADE",
    "ALTER TABLE tenants_policyrevision DISABLE TRIGGER USER",
    "DELETE FROM django_migrations",
    "CREATE OR REPLACE FUNCTION luminet_refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
    "CREATE OR REPLACE FUNCTION luminet_minutes_drop(day date) RETURNS void LANGUAGE sql AS 'SELECT'",
    "DROP FUNCTION luminet_refuse_change() CASCADE",
    "CREATE TABLE public.mine (id int)",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA mine",
    "DROP TABLE analytics_minute",
    "SET session_replication_role = replica",
    f"SET ROLE {OWNER}",
    "SET ROLE postgres",
    "CREATE ROLE mine",
    f"ALTER ROLE {APPLICATION} CREATEDB",
    "CREATE DATABASE mine",
    f"ALTER DATABASE {NAME} SET session_replication_role = replica",
    "COPY tenants_auditrecord TO PROGRAM 'true'",
    "SELECT pg_read_file('PG_VERSION')",
)


def test_the_application_is_refused(made: Logins, subtests: pytest.Subtests) -> None:
    for statement in REFUSED:
        with (
            subtests.test(msg=statement),
            connected(made.application) as application,
            pytest.raises(errors.InsufficientPrivilege),
        ):
            application.execute(statement)


def test_the_application_writes_the_trail_and_its_head(made: Logins) -> None:
    with psycopg.connect(made.application) as application:
        application.execute(RECORD, [1_000_001])
        application.execute("INSERT INTO tenants_audithead (id, seq, hash) VALUES (1, 1, '') ON CONFLICT DO NOTHING")
        application.execute("SELECT seq FROM tenants_audithead WHERE id = 1 FOR UPDATE")
        application.execute("UPDATE tenants_audithead SET seq = seq + 1 WHERE id = 1")
        assert application.execute("SELECT count(*) FROM tenants_auditrecord WHERE seq = 1000001").fetchone() == (1,)
        application.rollback()


def test_the_application_makes_and_drops_days(made: Logins) -> None:
    names = [partition_name(DAY, parent) for parent in PARENTS]
    owners = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = ANY(%s)"
    with connected(made.application) as application:
        for parent in PARENTS:
            application.execute("SELECT luminet_minutes_make(%s, %s)", [parent, DAY])
        assert application.execute(owners, [names]).fetchall() == [(OWNER,), (OWNER,)]
        for name in names:
            application.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name)))
        application.execute("SELECT luminet_minutes_drop(%s)", [DAY])
        assert application.execute(owners, [names]).fetchall() == []


def test_days_of_any_other_table_are_refused(made: Logins, subtests: pytest.Subtests) -> None:
    with connected(made.application) as application:
        for parent in ("tenants_auditrecord", "analytics_piece", "", None):
            with subtests.test(parent=parent), pytest.raises(errors.InvalidParameterValue):
                application.execute("SELECT luminet_minutes_make(%s, %s)", [parent, DAY])


def test_a_stranger_cannot_drop_days(made: Logins) -> None:
    with connected(made.old) as stranger, pytest.raises(errors.InsufficientPrivilege):
        stranger.execute("SELECT luminet_minutes_drop(%s)", [DAY])


def test_the_owner_sees_the_applications_sessions(made: Logins) -> None:
    """A restore waits for them to end."""
    counted = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND backend_type = 'client backend'"
    with connected(made.application), connected(made.owner) as owner:
        assert owner.execute(counted, [APPLICATION]).fetchone() == (1,)


def test_a_restore_with_one_login_keeps_strangers_out() -> None:
    """Which `--no-privileges` had let in."""
    functions = ("luminet_minutes_make(text, date)", "luminet_minutes_drop(date)")
    with connection.cursor() as cursor:
        for function in functions:
            cursor.execute(f"GRANT EXECUTE ON FUNCTION {function} TO PUBLIC")
        schema_bring_up(None)
        for function in functions:
            cursor.execute("SELECT has_function_privilege('public', %s, 'EXECUTE')", [function])
            assert cursor.fetchone() == (False,)


@pytest.fixture
def one_login(made: Logins, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logins]:
    """The application owns everything, as before there were two logins."""
    with connected(_url("postgres")) as database:
        database.execute(f"REASSIGN OWNED BY {OWNER} TO {APPLICATION}")
    monkeypatch.setattr(database_roles, "LOCK_PAUSE_SECONDS", 0.05)
    yield made
    made.make()


def waiting(table: str) -> tuple[Any, ...] | None:
    """Who waits for a table, and since when its transaction lasts."""
    query = (
        "SELECT a.pid, a.xact_start FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid"
        " WHERE l.relation = %s::regclass AND NOT l.granted AND l.mode = 'AccessExclusiveLock'"
    )
    with connected(_url("postgres")) as database:
        return database.execute(query, [table]).fetchone()


def lacking(application: "psycopg.Connection[Any]") -> list[Any]:
    """Tables and sequences that the application cannot work with."""
    query = """
        SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND NOT CASE relkind
            WHEN 'S' THEN has_sequence_privilege(oid, 'USAGE')
            ELSE relkind NOT IN ('r', 'p') OR (has_table_privilege(oid, 'SELECT') AND (
                relname = 'django_migrations' OR has_table_privilege(oid, 'INSERT')))
        END
    """
    return application.execute(query).fetchall()


def owners(application: "psycopg.Connection[Any]") -> set[Any]:
    query = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    return {name for (name,) in application.execute(query)}


@pytest.mark.parametrize("table", ["tenants_auditrecord", "analytics_keyminute"])
def test_roles_wait_for_a_table_in_use(one_login: Logins, table: str) -> None:
    with ThreadPoolExecutor(1) as other, connected(one_login.application) as application:
        with application.transaction():
            application.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(sql.Identifier(table)))
            made = other.submit(one_login.make)
            first = wait_until(lambda: waiting(table), "a first try")
            wait_until(lambda: waiting(table) not in (None, first), "another try")
        made.result()
        assert owners(application) == {OWNER}
        assert lacking(application) == []


@pytest.mark.parametrize("table", ["fleet_agent", "analytics_keyminute"])
def test_a_table_in_use_for_good_is_named(one_login: Logins, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_roles, "LOCK_TRIES", 2)
    with connected(one_login.application) as holder, connected(one_login.application) as application:
        application.execute("SELECT luminet_minutes_make('analytics_minute', %s)", [DAY])
        with holder.transaction():
            holder.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(sql.Identifier(table)))
            pid = holder.info.backend_pid
            said = rf"{table}.*: locked by process {pid} of {APPLICATION} \(idle in transaction\), .*run roles` again"
            with pytest.raises(RolesProblem, match=said):
                one_login.make()
            assert APPLICATION in owners(application)
            assert lacking(application) == []
            application.execute("SELECT luminet_minutes_make('analytics_minute', %s)", [NEXT_DAY])
            for day in (DAY, NEXT_DAY):
                application.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(partition_name(day))))
                application.execute("SELECT luminet_minutes_drop(%s)", [day])
        one_login.make()
        assert owners(application) == {OWNER}


def test_a_deadlock_fails_roles_and_not_the_application(one_login: Logins) -> None:
    with ThreadPoolExecutor(1) as other, connected(one_login.application) as application:
        with application.transaction():
            application.execute("SELECT FROM analytics_keyminute LIMIT 1")
            made = other.submit(one_login.make)
            wait_until(lambda: waiting("analytics_keyminute") is not None, "roles to have one table and want the other")
            application.execute("SELECT FROM analytics_minute LIMIT 1")
        made.result()
        assert owners(application) == {OWNER}


@pytest.mark.parametrize("is_given_back", [False, True])
def test_the_way_back_can_make_days_itself(one_login: Logins, is_given_back: bool) -> None:
    """As the version before does: with the owner's URL, or with all tables given back to one login."""
    if not is_given_back:
        one_login.make()
    day = "PARTITION OF analytics_minute FOR VALUES FROM ('2031-02-03 00:00+00') TO ('2031-02-04 00:00+00')"
    with connected(one_login.application if is_given_back else one_login.owner) as login:
        login.execute(f"CREATE TABLE {partition_name(DAY)} {day}")
        assert lacking(login) == []
        login.execute(f"DROP TABLE {partition_name(DAY)}")


def test_the_guides_statements_make_two_logins(logins: Logins) -> None:
    """Without `run roles`: the first migration grants the rest."""
    (block,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    named = re.sub(r"\bluminet", "guide", re.sub(r"--.*", "", block)).replace("…", POSTGRES_PASSWORD)
    statements = [statement.strip() for statement in named.split(";") if statement.strip()]
    urls = [_url(login, name="guide") for login in ("guide_owner", "guide")]
    with connected(logins.superuser) as server:
        try:
            for statement in statements:
                server.execute(statement)
            with psycopg.connect(urls[0]) as owner:
                owner.execute("CREATE TABLE tenants_auditrecord (id int)")
                grants_apply(owner.cursor(), application="guide")
            with connected(urls[1]) as application:
                application.execute("INSERT INTO tenants_auditrecord VALUES (1)")
                for refused in ("DELETE FROM tenants_auditrecord", "CREATE TABLE mine (id int)"):
                    with pytest.raises(errors.InsufficientPrivilege):
                        application.execute(refused)
        finally:
            server.execute("DROP DATABASE IF EXISTS guide WITH (FORCE)")
            server.execute("DROP ROLE IF EXISTS guide, guide_owner")
