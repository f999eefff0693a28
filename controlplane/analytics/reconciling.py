"""Whether everybody who counts has counted the same: engines, the ledger of their reports, minutes, and pieces.

Compared are, all in one snapshot of the database and each by one query however much there is:
  engine and ledger     what an engine counted of a namespace since its boot, and what its reports came to;
  ledger and minutes    a day of a namespace on an agent, from the first day on whose minutes are kept;
  minutes and pieces    every piece that counts, with the minutes it is the sum of.
Reports are taken in whole, in one transaction each, so a snapshot never shows half of one. What is here writes nothing.
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
NOBODY: Final = -1  # no namespace's id
EXPLAINING: Final = ("minute", "namespace")  # what is refused for anything else counted nothing sound


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
    """What could not be counted, of that agent and namespace: how many rows, what they told, and what was wrong."""

    rows: int
    told: Counted
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two who counted the same thing differently. What has no place of a kind has None; namespace 0 is the fleet."""

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
        """How much more the first says."""
        return self.sides[0] - self.sides[1]

    @property
    def is_explained(self) -> bool:
        """Refused rows come to exactly what is missing."""
        return self.refused is not None and self.refused.told == self.difference

    @property
    def tokens(self) -> int:
        """How far apart they are, whichever is more: of prompt tokens, or of cached ones where those agree."""
        return abs(self.difference.prompt_tokens) or abs(self.difference.cached_tokens)

    @property
    def place(self) -> str:
        """Where, as people say it."""
        whose = self.namespace or ("the fleet" if self.namespace_id == 0 else f"namespace {self.namespace_id}")
        boot = None if self.boot is None else f"boot {self.boot}"
        when = None if self.start is None else f"{self.level} s from {self.start:%F %R} UTC"
        day = None if self.day is None else str(self.day)
        return ", ".join(part for part in (self.agent, whose, boot, day, when) if part is not None)


@dataclass(frozen=True, slots=True)
class Found:
    at: datetime
    compared: Mapping[Between, int]
    differences: Sequence[Difference]


def reconcile(now: datetime) -> list[Difference]:
    """Every difference there is, the largest first."""
    return list(reconciled(now).differences)


def reconciled(now: datetime) -> Found:
    """The same, and how much was compared."""
    compared: dict[Between, int] = {}
    found: list[Difference] = []
    with _snapshot():
        days = partitions()
        for between, sql, asked in _questions(days):
            rows = _rows(sql, asked)
            compared[between] = rows[0][0] if rows else 0
            found += [_difference(between, row) for row in rows if row[-1]]
        found = _named(_explained(found))
    found.sort(key=lambda one: (-one.tokens, -abs(one.difference.requests), one.place))
    return Found(now, compared, found)


@contextmanager
def _snapshot() -> Iterator[None]:
    """One moment of the database for all queries. Inside somebody's transaction it is theirs."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = {LONGEST_SECONDS * 1000}")
        # Before the snapshot is taken: a day's partition that went afterwards would be missed in it.
        cursor.execute("LOCK TABLE analytics_minute IN ACCESS SHARE MODE")
        yield


def _questions(days: Sequence[date]) -> Iterator[tuple[Between, str, dict[str, Any]]]:
    yield "engine and ledger", ENGINE_AND_LEDGER, {}
    if days:
        since = datetime.combine(days[0], datetime.min.time(), UTC)
        yield "ledger and minutes", LEDGER_AND_MINUTES, {"first": days[0], "cache": CACHE_KIND}
        yield "minutes and pieces", MINUTES_AND_PIECES, {"since": since, "cache": CACHE_KIND}


def _difference(between: Between, row: Sequence[Any]) -> Difference:
    _, agent, boot, namespace_id, day, level, start, *told, _ = row
    sides = (Counted(*told[: len(COUNTED)]), Counted(*told[len(COUNTED) :]))
    return Difference(between, namespace_id, sides, agent, boot, day, level, start)


def _rows(sql: str, asked: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, asked)
        return list(cursor.fetchall())


# What explains a difference, and who is concerned


def _explained(found: Sequence[Difference]) -> list[Difference]:
    """With what was refused, where an engine counted something else than its reports came to."""
    agents = {one.agent for one in found if one.between == BETWEEN[0]}
    rows = list(RefusedRow.objects.filter(agent__in=agents).order_by("pk")) if agents else []
    by_place: dict[tuple[str, int], list[RefusedRow]] = defaultdict(list)
    for row in rows:
        by_place[row.agent, _namespace_of(row.told)].append(row)
    return [_with_refused(one, by_place) if one.between == BETWEEN[0] else one for one in found]


def _with_refused(one: Difference, by_place: Mapping[tuple[str, int], Sequence[RefusedRow]]) -> Difference:
    """Rows of that boot that told of that namespace, and what was lost of its journal, of whomever it told."""
    lost = [row for row in by_place.get((str(one.agent), NOBODY), ()) if row.field == "lost"]
    rows = [row for row in by_place.get((str(one.agent), one.namespace_id), ()) if row.field in EXPLAINING]
    rows = [row for row in (*rows, *lost) if isinstance(row.told, dict) and row.told.get("boot") == one.boot]
    return replace(one, refused=_together(rows)) if rows else one


def _together(rows: Sequence[RefusedRow]) -> Refused:
    why = dict.fromkeys(f"{row.field}: {row.problem}" for row in rows)
    return Refused(len(rows), sum((_counts_of(row.told) for row in rows), Counted()), tuple(why)[:MOST_REASONS])


def _namespace_of(told: Any) -> int:
    """Whoever told it may have told anything."""
    name = told.get("namespace") if isinstance(told, dict) else None
    return int(name) if isinstance(name, str) and re.fullmatch(r"[0-9]{1,18}", name) else NOBODY


def _counts_of(told: Any) -> Counted:
    counts = told.get("counts") if isinstance(told, dict) else None
    known = counts if isinstance(counts, dict) else {}
    return Counted(*(_count(known.get(name)) for name in COUNTED))


def _count(told: Any) -> int:
    """As it would have been taken: what is absurd explains nothing."""
    return told if type(told) is int and 0 <= told <= MOST else 0


def _named(found: Sequence[Difference]) -> list[Difference]:
    wanted = {one.namespace_id for one in found}
    rows = Namespace.objects.filter(pk__in=wanted) if wanted else Namespace.objects.none()
    names = {pk: f"{org}/{slug}" for pk, org, slug in rows.values_list("pk", "organisation__slug", "slug")}
    return [replace(one, namespace=names.get(one.namespace_id, "")) for one in found]
