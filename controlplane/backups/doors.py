"""The commands `luminet backup` and `luminet restore`: their output and exit status."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from controlplane.backups.databases import Server, database_name, nobody_check, server_open, with_database
from controlplane.backups.errors import BackupProblem
from controlplane.backups.making import backup_make
from controlplane.client.asking import agreed, working
from controlplane.client.errors import ClientError
from controlplane.database.roles import URL, RolesProblem, owner_instead

if TYPE_CHECKING:  # these modules need Django's settings
    from controlplane.backups.endings import Endings
    from controlplane.backups.era import Era


@dataclass(frozen=True, slots=True)
class Asked:
    """Arguments of `luminet restore`. Without a file, the database was already restored by other means."""

    file: str | None
    audit: str | None = None
    dry_run: bool = False
    yes: bool = False
    as_json: bool = False


def backup(file: str, *, as_json: bool = False) -> int:
    try:
        url, _ = _logins()
        with working(lambda: f"writing {file}{_grown(file)}"):
            created = backup_make(url, file)
    except BackupProblem as problem:
        return _failed(problem)
    if as_json:
        print(json.dumps(asdict(created), indent=2), file=sys.stderr if created.bytes is None else sys.stdout)
    elif created.bytes is not None:
        print(f"{created.file}: {created.bytes / 2**20:.1f} MiB in {created.seconds:.1f} s")
        print("Keep LUMINET_MASTER_KEY apart from it: neither is of use without the other.", file=sys.stderr)
    return 0


def restore(request: Asked) -> int:
    try:
        report = _in_place(request) if request.file is None else _brought_back(request, Path(request.file))
    except (BackupProblem, ClientError) as problem:
        return _failed(problem)
    _tell(report, request)
    failed = (report["endings"] or {}).get("failed", [])
    return 3 if failed else 0


def _brought_back(request: Asked, file: Path) -> dict[str, Any]:
    (url, application), now = _logins(), datetime.now(UTC)
    name = database_name(url)
    new_name = f"{name[:48]}_restoring"
    _django_with(with_database(url, new_name))
    from controlplane.backups import restoring

    restoring.backup_check(file)
    with server_open(url) as server, _trail(request.audit) as trail:
        if not request.dry_run:
            nobody_check(server, name)
            agreed(_question(server, name, file), name, yes=request.yes)
        server.drop(new_name)  # left over from an interrupted restore
        server.create(new_name)
        try:
            with working(f"reading {file} into {new_name}"):
                restoring.backup_load(with_database(url, new_name), file)
            with working("beginning a new era"):
                restoring.schema_bring_up(application)
                era, endings = _began(trail, now=now, dry_run=request.dry_run)
            restoring.connections_end()
            if request.dry_run:
                server.drop(new_name)
                aside_name = None
            else:
                aside_name = restoring.put_in_place(server, fresh=new_name, name=name, now=now)
        except BaseException:
            restoring.connections_end()
            server.drop(new_name)
            raise
    return _facts(era, endings, aside_name)


def _in_place(request: Asked) -> dict[str, Any]:
    """Reset the epoch of a database that was restored otherwise: by a managed service or to a point in time."""
    (url, application), now = _logins(), datetime.now(UTC)
    _django_with(url)
    from controlplane.backups import restoring

    with server_open(url) as server, _trail(request.audit) as trail:
        if not server.has(database_name(url)):
            raise BackupProblem(f"there is no database {database_name(url)}: name the backup's file")
        nobody_check(server, database_name(url))
        if not request.dry_run:
            question = f"The database {database_name(url)} begins a new era: every cache of the fleet is cold once"
            agreed(question, database_name(url), yes=request.yes)
        try:
            with working("beginning a new era"):
                restoring.schema_check() if request.dry_run else restoring.schema_bring_up(application)
                era, endings = _began(trail, now=now, dry_run=request.dry_run)
        finally:
            restoring.connections_end()
    return _facts(era, endings, None)


def _facts(era: "Era", endings: "Endings | None", aside_name: str | None) -> dict[str, Any]:
    return {"era": asdict(era), "endings": None if endings is None else endings.as_json(), "aside": aside_name}


def _began(trail: TextIO | None, *, now: datetime, dry_run: bool) -> "tuple[Era, Endings | None]":
    """Carry out the epoch reset and return its results. A dry run rolls it back, so Redis never hears of it."""
    from django.db import DatabaseError, transaction

    from controlplane.backups import restoring
    from tenants.errors import TenantsError

    restoring.secrets_check()
    try:
        with transaction.atomic():
            outcome = restoring.era_carry_out(trail, now=now)
            if dry_run:
                transaction.set_rollback(True)
    except (TenantsError, DatabaseError) as problem:
        raise BackupProblem(f"the new era cannot begin: {problem}") from None
    return outcome


def _question(server: Server, name: str, file: Path) -> str:
    subject = f"The database {name} is set aside and" if server.has(name) else f"The database {name}"
    verb = "replaced by" if server.has(name) else "is made of"
    return f"{subject} {verb} what {file} holds; every cache of the fleet is cold once"


def _django_with(url: str) -> None:
    """Set Django up for this database. Settings are read once, so this process can use no other from here on."""
    import django

    os.environ[URL] = url
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.django")
    django.setup()


def _logins() -> tuple[str, str | None]:
    """Return the URL that may create and rename databases (the owner's, if set) and the application's login."""
    if not os.environ.get(URL):
        raise BackupProblem(f"{URL}: is not set, and no stack runs from here")
    try:
        application = owner_instead(os.environ)
    except RolesProblem as problem:
        raise BackupProblem(str(problem)) from None
    return os.environ[URL], application


@contextmanager
def _trail(file: str | None) -> Iterator[TextIO | None]:
    if file is None:
        yield None
        return
    try:
        lines = open(file, encoding="utf-8")  # noqa: SIM115 (closed below; what goes wrong meanwhile is not its fault)
    except OSError as problem:
        raise BackupProblem(f"--audit: {file}: {problem.strerror}") from None
    with lines:
        yield lines


def _grown(file: str) -> str:
    part = Path(file).with_name(f".{Path(file).name}.part")
    return f", {part.stat().st_size / 2**20:.0f} MiB" if part.exists() else ""


def _tell(report: Mapping[str, Any], request: Asked) -> None:
    if request.as_json:
        print(json.dumps(report, indent=2))
        return
    for line in _lines(report, request):
        print(line)


def _lines(report: Mapping[str, Any], request: Asked) -> Iterator[str]:
    era, endings = report["era"], report["endings"]
    if request.dry_run:
        yield "Nothing was changed. It would have been:"
    yield f"The backup's last deed is of {era['backup_until'] or 'nobody'}."
    yield f"{era['namespaces']} namespaces have a new epoch: nothing cached before matches, purged or not."
    yield f"Ended: {era['join_tokens']} join tokens, {era['links']} links, every session."
    if era["rollouts"]:
        yield f"Paused: {era['rollouts']} rollouts, to be resumed or aborted."
    yield from _ending_lines(endings) if endings else [NO_TRAIL]
    if report["aside"]:
        yield f"What was there before is the database {report['aside']} now; drop it when you need it no more."
    if not request.dry_run:
        yield "Next: luminet run migrate, then start web, worker and beat."


NO_TRAIL = (
    "Keys, tokens, members and agents that were ended after the backup are good again: end them once more, or restore "
    "with --audit and a newer copy of the audit trail."
)


def _ending_lines(endings: Mapping[str, Any]) -> Iterator[str]:
    yield f"Ended again, by the copy of the trail: {_counted(endings['carried_out'])}."
    if endings["left"]:
        yield f"Not done again, and to be done by you where it still matters: {_counted(endings['left'])}."
    for failure in endings["failed"]:
        yield f"FAILED: {failure}"


def _counted(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{verb} {count}" for verb, count in sorted(numbers.items())) or "nothing"


def _failed(problem: Exception) -> int:
    print(f"luminet: {problem}", file=sys.stderr)
    return 1
