"""Comparison of all counts of the same usage: by engines, the ledger of their reports, minutes, and pieces.

All are compared in one snapshot of the database, each by one query for any amount of data:
  engine and ledger     an engine's count of a namespace since its boot, and the sum of its reports;
  ledger and minutes    a day of a namespace on an agent, from the first day with minutes;
  minutes and pieces    every valid piece, and the minutes that it sums.
A report is stored whole, in one transaction, so a snapshot never shows half of it. This module writes nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Final, Literal

from django.db import connection, transaction

from controlplane.analytics.columns import CACHE_KIND
from controlplane.analytics.models import RefusedRow
from controlplane.analytics.partitions import partitions
from controlplane.analytics.reconciling_sql import ENGINE_AND_LEDGER, LEDGER_AND_MINUTES, MINUTES_AND_PIECES
from controlplane.analytics.rows import MOST
from tenants.models import Namespace

Between = Literal["engine and ledger", "ledger and minutes", "minutes and pieces"]
BETWEEN: Final[tuple[Between, ...]] = ("engine and ledger", "ledger and minutes", "minutes and pieces")
COUNTED: Final = ("requests", "prompt_tokens", "cached_tokens")
LONGEST_SECONDS: Final = 50
MOST_REASONS: Final = 5
NOBODY: Final = -1  # not the id of any namespace
EXPLAINING: Final = ("minute", "namespace")  # the counts of rows refused in other fields are unreliable


@dataclass(frozen=True, slots=True)
class Counted:
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(*(getattr(self, name) + getattr(other, name) for name in COUNTED))

    def __sub__(self, other: "Counted") -> "Counted":
        return Counted(*(getattr(self, name) - getattr(other, name) for name in COUNTED))


@dataclass(frozen=True, slots=True)
class Refused:
    """Rows of one agent and namespace that could not be counted: their number, their sum, and what was wrong."""

    rows: int
    told: Counted
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two counts of the same usage that differ. Fields that do not apply are None; namespace 0 is the fleet."""

    between: Between
    namespace_id: int
    sides: tuple[Counted, Counted]  # in the order of `between`
    agent: str | None = None
    boot: str | None = None
    day: date | None = None
    level: int | None = None
    start: datetime | None = None
    namespace: str = ""  # org/namespace, for people
    refused: Refused | None = None

    @property
    def difference(self) -> Counted:
        """The first count minus the second."""
        return self.sides[0] - self.sides[1]

    @property
    def is_explained(self) -> bool:
        """True if refused rows add up to exactly the difference."""
        return self.refused is not None and self.refused.told == self.difference

    @property
    def tokens(self) -> int:
        """The absolute difference of prompt tokens, or of cached tokens if the prompt tokens agree."""
        return abs(self.difference.prompt_tokens) or abs(self.difference.cached_tokens)

    @property
    def place(self) -> str:
        """The place of the difference, for display."""
        namespace = self.namespace or ("the fleet" if self.namespace_id == 0 else f"namespace {self.namespace_id}")
        boot = None if self.boot is None else f"boot {self.boot}"
        span = None if self.start is None else f"{self.level} s from {self.start:%F %R} UTC"
        day = None if self.day is None else str(self.day)
        return ", ".join(part for part in (self.agent, namespace, boot, day, span) if part is not None)


@dataclass(frozen=True, slots=True)
class Found:
    at: datetime
    compared: Mapping[Between, int]
    differences: Sequence[Difference]


def reconcile(now: datetime) -> list[Difference]:
    """Return all differences, largest first."""
    return list(reconciled(now).differences)


def reconciled(now: datetime) -> Found:
    """Return all differences, and how many pairs were compared."""
    compared: dict[Between, int] = {}
    differences: list[Difference] = []
    with _snapshot():
        days = partitions()
        for between, sql, parameters in _questions(days):
            rows = _rows(sql, parameters)
            compared[between] = rows[0][0] if rows else 0
            differences += [_difference(between, row) for row in rows if row[-1]]
        differences = _named(_explained(differences))
    differences.sort(
        key=lambda difference: (-difference.tokens, -abs(difference.difference.requests), difference.place)
    )
    return Found(now, compared, differences)


@contextmanager
def _snapshot() -> Iterator[None]:
    """Run all queries in one snapshot of the database. Inside a caller's transaction, use its snapshot."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = {LONGEST_SECONDS * 1000}")
        # Lock before the snapshot is taken, so that no day's partition is dropped after it.
        cursor.execute("LOCK TABLE analytics_minute IN ACCESS SHARE MODE")
        yield


def _questions(days: Sequence[date]) -> Iterator[tuple[Between, str, dict[str, Any]]]:
    yield "engine and ledger", ENGINE_AND_LEDGER, {}
    if days:
        since = datetime.combine(days[0], datetime.min.time(), UTC)
        yield "ledger and minutes", LEDGER_AND_MINUTES, {"first": days[0], "cache": CACHE_KIND}
        yield "minutes and pieces", MINUTES_AND_PIECES, {"since": since, "cache": CACHE_KIND}


def _difference(between: Between, row: Sequence[Any]) -> Difference:
    _, agent, boot, namespace_id, day, level, start, *counts, _ = row
    sides = (Counted(*counts[: len(COUNTED)]), Counted(*counts[len(COUNTED) :]))
    return Difference(between, namespace_id, sides, agent, boot, day, level, start)


def _rows(sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


# Explanations and names


def _explained(differences: Sequence[Difference]) -> list[Difference]:
    """Attach the refused rows to the differences between engine and ledger."""
    agents = {difference.agent for difference in differences if difference.between == BETWEEN[0]}
    rows = list(RefusedRow.objects.filter(agent__in=agents).order_by("pk")) if agents else []
    refused_rows: dict[tuple[str, int], list[RefusedRow]] = defaultdict(list)
    for row in rows:
        refused_rows[row.agent, _namespace_of(row.told)].append(row)
    return [
        _with_refused(difference, refused_rows) if difference.between == BETWEEN[0] else difference
        for difference in differences
    ]


def _with_refused(difference: Difference, refused_rows: Mapping[tuple[str, int], Sequence[RefusedRow]]) -> Difference:
    """Attach the refused rows of this boot: those of this namespace, and lost journal records of any namespace."""
    lost = [row for row in refused_rows.get((str(difference.agent), NOBODY), ()) if row.field == "lost"]
    rows = [
        row for row in refused_rows.get((str(difference.agent), difference.namespace_id), ()) if row.field in EXPLAINING
    ]
    rows = [row for row in (*rows, *lost) if isinstance(row.told, dict) and row.told.get("boot") == difference.boot]
    return replace(difference, refused=_together(rows)) if rows else difference


def _together(rows: Sequence[RefusedRow]) -> Refused:
    reasons = dict.fromkeys(f"{row.field}: {row.problem}" for row in rows)
    return Refused(len(rows), sum((_counts_of(row.told) for row in rows), Counted()), tuple(reasons)[:MOST_REASONS])


def _namespace_of(refused_row: Any) -> int:
    """Return the namespace of a refused row, in which an agent may have sent anything."""
    name = refused_row.get("namespace") if isinstance(refused_row, dict) else None
    return int(name) if isinstance(name, str) and re.fullmatch(r"[0-9]{1,18}", name) else NOBODY


def _counts_of(refused_row: Any) -> Counted:
    counts = refused_row.get("counts") if isinstance(refused_row, dict) else None
    valid_counts = counts if isinstance(counts, dict) else {}
    return Counted(*(_count(valid_counts.get(name)) for name in COUNTED))


def _count(count: Any) -> int:
    """Return a count if it would have been accepted, else 0: an absurd number explains nothing."""
    return count if type(count) is int and 0 <= count <= MOST else 0


def _named(differences: Sequence[Difference]) -> list[Difference]:
    namespace_ids = {difference.namespace_id for difference in differences}
    rows = Namespace.objects.filter(pk__in=namespace_ids) if namespace_ids else Namespace.objects.none()
    names = {pk: f"{org}/{slug}" for pk, org, slug in rows.values_list("pk", "organisation__slug", "slug")}
    return [replace(difference, namespace=names.get(difference.namespace_id, "")) for difference in differences]
