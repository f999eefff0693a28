"""Compare the migrations that a database has applied with those that this code ships.

Processes check this before they load Django. A database may be ahead: a newer version has migrated it, while processes
of the older version still run, or were rolled back. They can work with it, because only a migration named `contract_…`
removes what the previous version uses. Its name is all that older code knows of it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from engine_agent.contracts.words import listed

CONNECT_SECONDS = 5
# Label and package of each app with migrations; tests/contract/test_migrations.py compares them with the settings.
APPS = {
    "admin": "django.contrib.admin",
    "auth": "django.contrib.auth",
    "contenttypes": "django.contrib.contenttypes",
    "sessions": "django.contrib.sessions",
    "tenants": "tenants",
    "live": "controlplane.live",
    "fleet": "controlplane.fleet",
    "analytics": "controlplane.analytics",
    "rollouts": "controlplane.rollouts",
    "alerts": "controlplane.alerts",
}
_CONTRACT = re.compile(r"\d{4}_contract_")
Name = tuple[str, str]  # app, migration


@dataclass(frozen=True, slots=True)
class Standing:
    """Migrations `missing` from the database, and those `beyond` this code: applied, but unknown to it."""

    missing: tuple[Name, ...]
    beyond: tuple[Name, ...]

    @property
    def taken(self) -> tuple[Name, ...]:
        """Return the unknown migrations that removed something that this code uses."""
        return tuple(migration for migration in self.beyond if is_contract(migration[1]))

    @property
    def problem(self) -> str | None:
        """Return why this code cannot work with the database, or None if it can."""
        if self.missing:
            return f"not applied yet: run `luminet run migrate` ({_told(self.missing)})"
        if self.taken:
            return (
                f"ahead of this code, which cannot work with it any more: {_told(self.taken)}. "
                "Run the newer version, or restore the backup from before its `luminet run migrate`"
            )
        return None


def is_contract(migration: str) -> bool:
    """Return whether the migration removes what the previous version uses."""
    return _CONTRACT.match(migration) is not None


def standing_of(applied: Iterable[Name]) -> Standing:
    applied_migrations, shipped_migrations = {(app, name) for app, name in applied}, shipped()
    return Standing(
        tuple(sorted(shipped_migrations - applied_migrations)), tuple(sorted(applied_migrations - shipped_migrations))
    )


def shipped() -> frozenset[Name]:
    return frozenset((label, file.stem) for label, package in APPS.items() for file in _files(package))


def applied(cursor: Any) -> list[Name]:
    """Return the applied migrations, read with a cursor of psycopg or Django. A new database has none."""
    cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
    if not cursor.fetchone()[0]:
        return []
    cursor.execute("SELECT app, name FROM django_migrations")
    return list(cursor.fetchall())


def schema_fits_or_exit(database_url: str) -> None:
    """Exit if database and code do not fit. A database that does not answer passes: the process waits for it later."""
    try:
        with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
            problem = standing_of(applied(connection.cursor())).problem
    except psycopg.Error:
        return
    if problem is not None:
        raise SystemExit(f"luminet: the database is {problem}")


def _files(package: str) -> Iterable[Path]:
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).parent.glob("migrations/[0-9]*.py")


def _told(names: tuple[Name, ...]) -> str:
    return listed([".".join(name) for name in names], 1)
