"""Restore a backup into a new database, reset its epoch there, then swap it in by renaming.

So no client is ever served from a database that is half restored or not yet reset. The previous database is renamed and
kept. While this runs, Django's settings must name the database that is being restored: see doors.py.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from django.core.management import call_command
from django.db import connection, connections

from controlplane.backups.databases import Server, aside_name, nobody_check
from controlplane.backups.endings import Endings, endings_carry_out, endings_read
from controlplane.backups.era import Era, era_begin
from controlplane.backups.errors import BackupProblem
from controlplane.backups.programs import program_run
from controlplane.database.roles import application_grant
from controlplane.database.schema import Standing, applied, standing_of
from tenants.audit import GENESIS, Links
from tenants.crypto import Unreadable
from tenants.models import AuditRecord, NamespaceKey
from tenants.services.namespace_keys import key_open

OPTIONS = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")


def backup_check(file: Path) -> None:
    """Raise BackupProblem unless the file is a backup, before anything is changed."""
    try:
        with file.open("rb") as opened:
            magic = opened.read(5)
    except OSError as problem:
        raise BackupProblem(f"{file}: {problem.strerror}") from None
    if magic != b"PGDMP":
        raise BackupProblem(f"{file} is no backup: `luminet backup` makes one, as does pg_dump --format=custom")


def backup_load(url: str, file: Path) -> None:
    program_run("pg_restore", url, [*OPTIONS, str(file)])


def schema_bring_up(application: str | None) -> None:
    """Apply missing migrations and grant the application its rights. Raise BackupProblem if the database is newer."""
    _standing()
    call_command("migrate", interactive=False, verbosity=0)
    application_grant(application)


def schema_check() -> None:
    """Raise BackupProblem unless the schema is current, for a dry run, which may not migrate."""
    if missing := _standing().missing:
        app, name = missing[0]
        raise BackupProblem(
            f"the database is of an older Luminet, which lacks {app} {name}: without --dry-run it is brought up"
        )


def _standing() -> Standing:
    with connection.cursor() as cursor:
        schema_state = standing_of(applied(cursor))
    if schema_state.beyond:
        app, name = schema_state.beyond[-1]
        raise BackupProblem(
            f"what was brought back is of a newer Luminet, which has {app} {name}: restore with that one"
        )
    return schema_state


def secrets_check() -> None:
    """Raise BackupProblem unless the current settings open the backup's sealed keys and match its signatures."""
    key = NamespaceKey.objects.filter(retired_at=None).order_by("-pk").first()
    try:
        if key is not None and key.sealed is not None:
            key_open(key.namespace_id, key.epoch, key.sealed)
    except Unreadable:
        problem = "LUMINET_MASTER_KEY: another one than the backup's, whose secrets cannot be opened with it"
        raise BackupProblem(problem) from None
    last = AuditRecord.objects.order_by("-seq").first()
    if last is None:
        return
    previous_hash = AuditRecord.objects.filter(seq=last.seq - 1).values_list("hash", flat=True).first()
    if not Links().fits(bytes(previous_hash) if previous_hash else GENESIS, last):
        raise BackupProblem("LUMINET_SIGNING_KEY: another one than the backup's, or the end of its audit trail changed")


def era_carry_out(trail: Iterable[str] | None, *, now: datetime) -> tuple[Era, Endings | None]:
    """Carry out the epoch reset and the endings. The trail is read first, because the reset adds records to it."""
    lines = None if trail is None else endings_read(trail)
    era = era_begin(now=now)
    return era, None if lines is None else endings_carry_out(lines)


def connections_end() -> None:
    """Close all connections and pools: only a database without connections can be renamed or dropped."""
    for open_connection in connections.all():
        open_connection.close()
        close_pool = getattr(open_connection, "close_pool", None)
        if close_pool is not None:
            close_pool()


def put_in_place(server: Server, *, fresh: str, name: str, now: datetime) -> str | None:
    """Rename the new database into place. Between the renames no database has the name: no client can connect."""
    aside = None
    if server.has(name):
        nobody_check(server, name)
        aside = aside_name(name, now)
        server.rename(name, aside)
    try:
        server.rename(fresh, name)
    except BaseException as why:
        if aside is not None:
            _put_back(server, aside, name, why)
        raise
    return aside


def _put_back(server: Server, aside: str, name: str, why: BaseException) -> None:
    try:
        server.rename(aside, name)
    except BackupProblem as problem:
        raise BackupProblem(f"{why}; the database that was there before is {aside} now, rename it: {problem}") from None
