"""Checks of stored data: migrations, reconciled counts, the audit trail and the daily partitions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from controlplane.doctor.context import Context
from controlplane.doctor.database import django_models
from controlplane.doctor.finding import Finding, NotExamined, broken, counted, note, ok, warning
from controlplane.doctor.place import RESTART, luminet
from controlplane.doctor.views import fleet_views, moment

OLD_COMPARISON = timedelta(minutes=15)
KEPT_AT_MOST = timedelta(days=6)  # of minutes: three days are kept, and retention waits until all of a day is rolled up
UNANCHORED_SECONDS = 900


def migrations(context: Context) -> Iterator[Finding]:
    do = RESTART if context.place.kind == "stack" else f"{luminet()} run migrate"
    with django_models(context):
        from django.db import connection

        from controlplane.database.schema import applied, standing_of

        with connection.cursor() as cursor:
            schema_state = standing_of(applied(cursor))
        yield from migration_findings(schema_state.missing, schema_state.beyond, schema_state.taken, do=do)


def migration_findings(
    missing: Sequence[tuple[str, str]],
    beyond: Sequence[tuple[str, str]],
    incompatible: Sequence[tuple[str, str]],
    *,
    do: str,
) -> Iterator[Finding]:
    """Evaluate migrations, each (app, name). `beyond`: applied and unknown here, as during an upgrade or a rollback;
    `incompatible`: those that this Luminet cannot work with."""
    if missing:
        count = counted(len(missing), "migration is", "migrations are")
        yield broken("migrations", f"{count} not applied, the first is {'.'.join(missing[0])}", do)
    if incompatible:
        says = f"The database is ahead of this Luminet, which cannot work with it: {'.'.join(incompatible[0])}"
        yield broken("migrations", says, "run the newer Luminet that made it, here too")
    elif beyond:
        says = f"The database is ahead of this Luminet, which goes on with it: {'.'.join(beyond[0])}"
        yield note("migrations", says, "docs/upgrades.md: run the newer Luminet here, too, when all is upgraded")
    elif not missing:
        yield ok("migrations", "All migrations are applied")


def reconciliation(context: Context) -> Iterator[Finding]:
    with fleet_views(context) as (views, now):
        yield reconciliation_finding(views.reconciliation(), now=now, do=context.place.worker_advice)


def reconciliation_finding(newest: Mapping[str, Any], *, now: datetime, do: str) -> Finding:
    """Evaluate the newest comparison. `newest`: as REST shows it."""
    name, at = "reconciliation", moment(newest.get("as_of"))
    if at is None:
        return note(name, "Counts were not compared yet: it is done once a minute")
    age = now - at
    when_compared = (
        f"{max(age.total_seconds(), 0) / 60:.0f} min ago" if age > timedelta(minutes=2) else "in the last 2 minutes"
    )
    if age > OLD_COMPARISON:
        return broken(name, f"Counts were last compared {when_compared}: no comparison comes to its end", do)
    differences: Sequence[Mapping[str, Any]] = newest["differences"]
    if differences:
        return _difference(name, differences)
    pairs = counted(sum(newest["compared"].values()), "pair of counts was", "pairs of counts were")
    return ok(name, f"{pairs} compared {when_compared}, and all agree")


def _difference(name: str, differences: Sequence[Mapping[str, Any]]) -> Finding:
    first = differences[0]
    suffix = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
    says = f"{first['between']} are {first['tokens']:,} tokens apart at {first['place']}{suffix}"
    if all(difference["is_explained"] for difference in differences):
        do = "luminet get alerts; docs/operations.md, Reconciliation, says which rows were refused and why"
        return warning(name, f"Refused rows explain it: {says}", do)
    do = "keep the agent's home and all logs: this is a bug of ours; docs/operations.md, Reconciliation"
    return broken(name, f"Counts do not agree: {says}", do)


def days(context: Context) -> Iterator[Finding]:
    with django_models(context) as now:
        from controlplane.analytics.partitions import PARENTS, partitions

        tables = {parent: partitions(parent) for parent in PARENTS}
        yield from day_findings(tables, now.date(), do=context.place.worker_advice)


def day_findings(tables: Mapping[str, Collection[date]], today: date, *, do: str) -> Iterator[Finding]:
    """Evaluate daily partitions. `tables`: days by table. Retention creates them hourly, else a day's first row."""
    newest = max(set.intersection(*(set(days) for days in tables.values())), default=None) if tables else None
    if newest is None:
        yield note("days", "There are no tables for minutes yet: the first report that comes makes one")
    elif newest > today:
        yield ok("days", f"There are tables for minutes up to {newest}")
    elif newest == today:
        yield note("days", "Tomorrow's table for minutes is not there yet: it is made once an hour")
    else:
        says = f"The newest table for minutes is of {newest}: nothing has made one ahead since"
        yield warning("days", says, do)
    oldest = min((day for days in tables.values() for day in days), default=today)
    if today - oldest <= KEPT_AT_MOST:
        yield ok("retention", f"No minutes are older than they should be: the oldest are of {oldest}")
    else:
        says = f"Minutes of {oldest} are still there, which should have been rolled up and dropped: "
        yield warning("retention", f"{says}does retention run?", do)


def trail(context: Context) -> Iterator[Finding]:
    if not context.place.is_deep:
        raise NotExamined("luminet doctor --deep walks all of it")
    with django_models(context):
        from tenants.audit import audit_verify

        verdict = audit_verify()
        if verdict.problem is None:
            yield ok("audit", f"The audit trail is sound: {verdict.records:,} records, each as it was written")
        else:
            says = f"The audit trail is not sound: {verdict.problem} ({verdict.records:,} records before it are)"
            do = "luminet audit export, keep it, and find out who can write to the database"
            yield broken("audit", says, do)


def owner(context: Context) -> Iterator[Finding]:
    with django_models(context):
        from django.db import connection

        from controlplane.database.roles import tables_owned

        with connection.cursor() as cursor:
            yield owner_finding(tables_owned(cursor))


def owner_finding(owned: Sequence[str]) -> Finding:
    """Evaluate ownership. `owned`: append-only tables that the application's login owns."""
    if not owned:
        return ok("database-owner", "The application's login at the database can neither alter nor drop its tables")
    says = f"The application's login owns {', '.join(owned)}: it can alter and drop what it may only add to"
    do = "set LUMINET_DATABASE_OWNER_URL, then luminet run roles and luminet run migrate: docs/upgrades.md"
    return warning("database-owner", says, do)


def anchors(context: Context) -> Iterator[Finding]:
    with django_models(context) as now:
        from controlplane.alerts.anchoring import anchors_seen

        file = context.environment.anchors.file
        if file is None:
            says = "LUMINET_AUDIT_ANCHOR_FILE is not set for this process: it anchors the audit trail nowhere"
            yield note("anchors", f"{says}, which is well where the worker has it")
            return
        anchor_state = anchors_seen(file)
        age = 0.0 if anchor_state.since is None else (now - anchor_state.since).total_seconds()
        yield anchor_finding(file, anchor_state.problems, age, has_begun=anchor_state.has_begun)


def anchor_finding(
    file: Path, problems: Sequence[str], unanchored_seconds: float, *, has_begun: bool = True
) -> Finding:
    if problems:
        do = f"luminet audit verify --anchor {file}, and find out who can write to the database"
        return broken("anchors", f"The audit trail does not fit its anchors: {problems[0]}", do)
    if unanchored_seconds > UNANCHORED_SECONDS:
        says = f"The audit trail has not been anchored for {unanchored_seconds / 60:.0f} minutes"
        return broken("anchors", says, f"see that the worker runs and can write {file}: its log has the reason")
    if not has_begun:
        return note("anchors", f"No anchor of the audit trail is in {file} yet: the worker writes one each minute")
    return ok("anchors", f"The audit trail fits its anchors in {file}")
