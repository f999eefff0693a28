"""Whether a database and this code fit: migrations that the code has, and those that the database says were applied.

What runs asks this before it loads Django. A database may be ahead: a newer version has migrated it, and whoever runs
still, or goes back, goes on by what that left in place. Only a migration whose name begins with `contract_` takes away
what the version before works with; its name is all that older code ever knows of it.
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
# Label and package of whatever has migrations; tests/contract/test_migrations.py compares with the settings.
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
    """`missing` from the database; `beyond` what this code knows, and applied."""

    missing: tuple[Name, ...]
    beyond: tuple[Name, ...]

    @property
    def taken(self) -> tuple[Name, ...]:
        """Of what is beyond: what took away something that this code works with."""
        return tuple(one for one in self.beyond if is_contract(one[1]))

    @property
    def problem(self) -> str | None:
        """Why this code cannot work with that database; None: it can."""
        if self.missing:
            return f"not applied yet: run `luminet run migrate` ({_told(self.missing)})"
        if self.taken:
            return (
                f"ahead of this code, which cannot work with it any more: {_told(self.taken)}. "
                "Run the newer version, or restore the backup from before its `luminet run migrate`"
            )
        return None


def is_contract(migration: str) -> bool:
    """Whether it takes away what the version before works with."""
    return _CONTRACT.match(migration) is not None


def standing_of(applied: Iterable[Name]) -> Standing:
    there, here = {(app, name) for app, name in applied}, shipped()
    return Standing(tuple(sorted(here - there)), tuple(sorted(there - here)))


def shipped() -> frozenset[Name]:
    return frozenset((label, file.stem) for label, package in APPS.items() for file in _files(package))


def applied(cursor: Any) -> list[Name]:
    """By a cursor of psycopg's or Django's. A database that nobody has ever migrated has none."""
    cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
    if not cursor.fetchone()[0]:
        return []
    cursor.execute("SELECT app, name FROM django_migrations")
    return list(cursor.fetchall())


def schema_fits_or_exit(database_url: str) -> None:
    """For who is about to start. A database that is away is none that does not fit: that is waited for, as ever."""
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
