"""Whether what is stored is whole: migrations, days to write into, the trail, and that everybody counted the same."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from controlplane.doctor.finding import Finding, broken, counted, note, ok, warning
from controlplane.doctor.judging.fleet import moment

OLD_COMPARISON = timedelta(minutes=15)
KEPT_AT_MOST = timedelta(days=6)  # days of minutes: three are kept, and retention needs all of a day rolled


def migrations(
    missing: Sequence[tuple[str, str]], beyond: Sequence[tuple[str, str]], taken: Sequence[tuple[str, str]], *, do: str
) -> list[Finding]:
    """Each (app, name). `beyond`: applied, and not known here; `taken`: those that this Luminet cannot work with.
    Where there are none of these, an upgrade is under way, or its way back.
    """
    found = []
    if missing:
        told = counted(len(missing), "migration is", "migrations are")
        found.append(broken("migrations", f"{told} not applied, the first is {'.'.join(missing[0])}", do))
    if taken:
        told = f"The database is ahead of this Luminet, which cannot work with it: {'.'.join(taken[0])}"
        found.append(broken("migrations", told, "run the newer Luminet that made it, here too"))
    elif beyond:
        told = f"The database is ahead of this Luminet, which goes on with it: {'.'.join(beyond[0])}"
        found.append(
            note("migrations", told, "docs/upgrades.md: run the newer Luminet here, too, when all is upgraded")
        )
    return found or [ok("migrations", "All migrations are applied")]


def days(there: Mapping[str, Collection[date]], today: date, *, do: str) -> list[Finding]:
    """Tables of single days, by whose they are. Retention makes them once an hour, else a day's first row does."""
    everybody = [set(days) for days in there.values()]
    ahead = set.intersection(*everybody) if everybody else set()
    newest = max(ahead, default=None)
    if newest is None:
        found = note("days", "There are no tables for minutes yet: the first report that comes makes one")
    elif newest > today:
        found = ok("days", f"There are tables for minutes up to {newest}")
    elif newest == today:
        found = note("days", "Tomorrow's table for minutes is not there yet: it is made once an hour")
    else:
        told = f"The newest table for minutes is of {newest}: nothing has made one ahead since"
        found = warning("days", told, do)
    oldest = min((day for days in there.values() for day in days), default=today)
    if today - oldest <= KEPT_AT_MOST:
        return [found, ok("retention", f"No minutes are older than they should be: the oldest are of {oldest}")]
    told = f"Minutes of {oldest} are still there, which should have been rolled up and dropped: does retention run?"
    return [found, warning("retention", told, do)]


def reconciliation(told: Mapping[str, Any], *, now: datetime, do: str) -> list[Finding]:
    """As REST gives the newest comparison."""
    at = moment(told.get("as_of"))
    if at is None:
        return [note("reconciliation", "Counts were not compared yet: it is done once a minute")]
    age = now - at
    when = f"{max(age.total_seconds(), 0) / 60:.0f} min ago" if age > timedelta(minutes=2) else "in the last 2 minutes"
    if age > OLD_COMPARISON:
        return [broken("reconciliation", f"Counts were last compared {when}: no comparison comes to its end", do)]
    pairs = sum(told["compared"].values())
    differences: Sequence[Mapping[str, Any]] = told["differences"]
    if not differences:
        return [
            ok(
                "reconciliation",
                f"{counted(pairs, 'pair of counts was', 'pairs of counts were')} compared {when}, and all agree",
            )
        ]
    return [_difference(differences)]


def _difference(differences: Sequence[Mapping[str, Any]]) -> Finding:
    first = differences[0]
    more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
    told = f"{first['between']} are {first['tokens']:,} tokens apart at {first['place']}{more}"
    if all(one["is_explained"] for one in differences):
        do = "luminet get alerts; docs/operations.md, Reconciliation, says which rows were refused and why"
        return warning("reconciliation", f"Refused rows explain it: {told}", do)
    do = "keep the agent's home and all logs: this is a bug of ours; docs/operations.md, Reconciliation"
    return broken("reconciliation", f"Counts do not agree: {told}", do)


def trail(records: int, problem: str | None) -> Finding:
    if problem is None:
        return ok("audit", f"The audit trail is sound: {records:,} records, each as it was written")
    told = f"The audit trail is not sound: {problem} ({records:,} records before it are)"
    return broken("audit", told, "luminet audit export, keep it, and find out who can write to the database")
