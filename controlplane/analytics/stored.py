"""Reads and writes of `ingest.py` besides the minutes, each in one statement for any number of agents."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection, models
from msgspec.structs import astuple

from controlplane.analytics.adding import MOST_SUM, replaced_on_conflict, sums_on_conflict
from controlplane.analytics.displaced import Bucket
from controlplane.analytics.displaced import Place as CounterPlace
from controlplane.analytics.levels_told import Lost, Pair, PinTold
from controlplane.analytics.models import (
    Divergence,
    EngineTotal,
    Eviction,
    EvictionCounter,
    JournalRead,
    KeySeries,
    LedgerEntry,
    PinHeld,
    PoolMinute,
    RefusedRow,
    Residence,
    ReuseCurve,
    Series,
)
from controlplane.analytics.rows import HELD, TOTALS, namespace_number
from controlplane.analytics.tally import LEDGER, Held, Pool, Read, RefusedOne, Total
from controlplane.fleet.columns import columns_sql, json_column
from controlplane.fleet.models import Agent
from engine_agent.contracts.protocol import canonical_json
from tenants.models import ApiKey, Namespace

_EPOCH: Final = date(1970, 1, 1)
ALL_NAMESPACES: Final = 0  # of the fleet's own series, which no agent reports
MOST_KEPT_BYTES: Final = 4_000  # of a refused row


# Reads


class Place(NamedTuple):
    """A namespace's organisation and group. `group` None: the namespace no longer exists."""

    organisation: int
    group: int | None


def namespace_places(ids: Collection[int]) -> dict[int, Place]:
    """Return the place of each namespace. Deleted ones are included: they were served before, and count."""
    rows = Namespace.objects.filter(pk__in=ids).values_list("pk", "organisation_id", "group_id") if ids else ()
    memberships = {pk: Place(organisation, group) for pk, organisation, group in rows}
    missing = set(ids) - memberships.keys() - {ALL_NAMESPACES}
    if missing:  # their rows are gone, but earlier series name the organisation
        earlier_series = Series.objects.filter(namespace_id__in=missing).values_list("namespace_id", "organisation_id")
        memberships |= {namespace: Place(organisation, None) for namespace, organisation in earlier_series}
    return memberships


def namespaces_foreign(
    namespaces_by_agent: Mapping[str, Collection[int]], memberships: Mapping[int, Place]
) -> dict[str, frozenset[int]]:
    """Return by agent the namespaces of other groups, unless the agent served them before they moved."""
    groups = dict(Agent.objects.filter(pk__in=list(namespaces_by_agent)).values_list("pk", "group_id"))
    foreign = {
        agent: {
            namespace
            for namespace in ids
            if namespace in memberships and memberships[namespace].group not in (None, groups[agent])
        }
        for agent, ids in namespaces_by_agent.items()
        if agent in groups
    }
    foreign_ids = set().union(*foreign.values())
    if foreign_ids:
        for agent, namespace in Series.objects.filter(
            namespace_id__in=foreign_ids, agent__in=list(foreign)
        ).values_list("agent", "namespace_id"):
            foreign[agent].discard(namespace)
    return {agent: frozenset(ids) for agent, ids in foreign.items()}


def key_owners(ids: Collection[str]) -> dict[str, int]:
    """Return the organisation of each key. For keys deleted with their organisation, earlier series name it."""
    rows = ApiKey.objects.filter(pk__in=ids).values_list("pk", "organisation_id") if ids else ()
    owners = {str(pk): organisation for pk, organisation in rows}
    if missing := set(ids) - owners.keys():
        owners |= dict(KeySeries.objects.filter(key__in=missing).values_list("key", "organisation_id"))
    return owners


def held_before(agents: Collection[str]) -> dict[str, dict[int, Held]]:
    if not agents:
        return {}
    residences: dict[str, dict[int, Held]] = {agent: {} for agent in agents}
    for row in Residence.objects.filter(agent__in=agents):
        numbers = tuple(getattr(row, name) for name in HELD)
        residences[row.agent][row.namespace_id] = Held(row.boot, numbers, row.at.timestamp(), row.formats)
    return residences


def journals_before(journals: Collection[tuple[str, str]]) -> dict[tuple[str, str], Read]:
    """Return how far the journal of each agent and boot is counted."""
    if not journals:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(JOURNALS_FIND, [list(column) for column in zip(*sorted(journals), strict=True)])
        return {(agent, boot): Read(*rest) for agent, boot, *rest in cursor.fetchall()}


JOURNALS_FIND: Final = (
    "SELECT agent, boot, upto, born, is_reborn FROM unnest(%s::text[], %s::text[]) AS told(agent, boot) "
    "JOIN analytics_journalread USING (agent, boot)"
)


def counters_before(counter_keys: Collection[CounterPlace]) -> dict[CounterPlace, Lost]:
    if not counter_keys:
        return {}
    columns = zip(
        *((counter_key.agent, counter_key.boot, *counter_key.pair) for counter_key in sorted(counter_keys)), strict=True
    )
    with connection.cursor() as cursor:
        cursor.execute(COUNTERS_FIND, [list(column) for column in columns])
        return {
            CounterPlace(agent, boot, Pair(victim, by, cause)): Lost(blocks, size, at.timestamp())
            for agent, boot, victim, by, cause, blocks, size, at in cursor.fetchall()
        }


COUNTERS_FIND: Final = (
    "SELECT agent, boot, victim, by, cause, blocks, bytes, at "
    "FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) AS told(agent, boot, victim, by, cause) "
    "JOIN analytics_evictioncounter USING (agent, boot, victim, by, cause)"
)


# Writes


def journals_put(read: Mapping[tuple[str, str], Read], now: datetime) -> None:
    types = "agent text, boot text, upto bigint, born bigint, is_reborn boolean, at timestamptz"
    rows = [(*journal, *position, now) for journal, position in read.items()]
    updates = f"{replaced_on_conflict(('upto', 'born', 'at'))}, is_reborn = old.is_reborn OR excluded.is_reborn"
    _upsert(JournalRead, types, rows, "agent, boot", updates)


def ledger_add(ledger: Mapping[tuple[str, str, int, int], Sequence[int]]) -> None:
    sums = ", ".join(f"{name} = least(old.{name}, {MOST_SUM}) + excluded.{name}" for name in LEDGER)
    rows = [
        (agent, boot, namespace, _EPOCH + timedelta(days=day), *(min(count, MOST_SUM) for count in numbers))
        for (agent, boot, namespace, day), numbers in ledger.items()
    ]
    columns = ", ".join(f"{name} bigint" for name in (*LEDGER, "upto"))
    types, updates = f"agent text, boot text, namespace_id bigint, day date, {columns}", f"{sums}, {_LEDGER_UPTO}"
    _upsert(LedgerEntry, types, rows, "agent, boot, namespace_id, day", updates)


_LEDGER_UPTO: Final = "upto = greatest(old.upto, excluded.upto)"


def totals_put(totals: Mapping[tuple[str, str, int], Total], now: datetime) -> None:
    types = "agent text, boot text, namespace_id bigint, " + ", ".join(f"{name} bigint" for name in TOTALS)
    rows = [(*key, *total.numbers, total.upto, now) for key, total in totals.items()]
    columns = f"{types}, upto bigint, at timestamptz"
    where = "WHERE old.upto <= excluded.upto"
    _upsert(
        EngineTotal, columns, rows, "agent, boot, namespace_id", replaced_on_conflict((*TOTALS, "upto", "at")), where
    )


def residences_put(residences: Mapping[str, Mapping[int, Held]]) -> None:
    types = "agent text, namespace_id bigint, boot text, " + ", ".join(f"{name} bigint" for name in HELD)
    rows = [
        (agent, namespace, residence.boot, *residence.numbers, json_column(residence.formats), _moment(residence.at))
        for agent, agent_residences in residences.items()
        for namespace, residence in agent_residences.items()
    ]
    updates = replaced_on_conflict(("boot", *HELD, "formats", "at"))
    _upsert(Residence, f"{types}, formats jsonb, at timestamptz", rows, "agent, namespace_id", updates)


def counters_put(counters: Mapping[CounterPlace, Lost]) -> None:
    types = "agent text, boot text, victim text, by text, cause text, blocks bigint, bytes bigint, at timestamptz"
    rows = [
        (counter.agent, counter.boot, *counter.pair, lost.blocks, lost.bytes, _moment(lost.at))
        for counter, lost in counters.items()
    ]
    _upsert(
        EvictionCounter, types, rows, "agent, boot, victim, by, cause", replaced_on_conflict(("blocks", "bytes", "at"))
    )


def evictions_add(buckets: Mapping[Bucket, Lost]) -> None:
    """Add to the buckets in the order of their keys, because other agents' transactions add to the same rows."""
    types = "level integer, start timestamptz, victim_id bigint, by_id bigint, cause text, blocks bigint, bytes bigint"
    rows = [
        (bucket.level, _moment(bucket.start), *bucket[2:], lost.blocks, min(lost.bytes, MOST_SUM), _moment(lost.at))
        for bucket, lost in buckets.items()
    ]
    updates = f"{sums_on_conflict(('blocks', 'bytes'))}, last_at = greatest(old.last_at, excluded.last_at)"
    _upsert(Eviction, f"{types}, last_at timestamptz", rows, "level, start, victim_id, by_id, cause", updates)


def pins_put(pins: Mapping[str, tuple[float, Mapping[UUID, PinTold]]]) -> None:
    """Replace the pins that each agent reported before."""
    if not pins:
        return
    rows = [
        (agent, pin.id, namespace_number(pin.namespace), *astuple(pin)[2:], _moment(at))
        for agent, (at, agent_pins) in pins.items()
        for pin in agent_pins.values()
    ]
    kept_columns = [[agent for agent, *_ in rows], [pin for _, pin, *_ in rows]]
    _execute(PINS_FORGET, [sorted(pins), *kept_columns])
    types = "agent text, pin_id uuid, namespace_id bigint, state text, is_warming boolean, wanted_tokens bigint"
    types += ", resident_tokens bigint, resident_bytes bigint, problem text, at timestamptz"
    updates = replaced_on_conflict(("namespace_id", *PinTold.__struct_fields__[2:], "at"))
    _upsert(PinHeld, types, rows, "agent, pin_id", updates)


PINS_FORGET: Final = (
    "DELETE FROM analytics_pinheld WHERE agent = ANY(%s) AND NOT EXISTS (SELECT FROM "
    "unnest(%s::text[], %s::uuid[]) AS kept(agent, pin_id) "
    "WHERE kept.agent = analytics_pinheld.agent AND kept.pin_id = analytics_pinheld.pin_id)"
)


def pools_put(pools: Mapping[tuple[str, int], Pool]) -> None:
    types = "agent text, minute timestamptz, boot text, capacity_bytes bigint, used_bytes bigint"
    types += ", evictable_bytes bigint, preemptions bigint"
    rows = [(agent, _moment(minute), *pool) for (agent, minute), pool in pools.items()]
    maxima = ", ".join(f"{name} = greatest(old.{name}, excluded.{name})" for name in ("used_bytes", "evictable_bytes"))
    updates = f"{replaced_on_conflict(('boot', 'capacity_bytes', 'preemptions'))}, {maxima}"
    _upsert(PoolMinute, types, rows, "agent, minute", updates)


def curves_put(curves: Mapping[tuple[str, int], tuple[Any, float]]) -> None:
    rows = [
        (*agent_and_namespace, json_column(report), _moment(at)) for agent_and_namespace, (report, at) in curves.items()
    ]
    types, where = "agent text, namespace_id bigint, told jsonb, at timestamptz", "WHERE old.at <= excluded.at"
    _upsert(ReuseCurve, types, rows, "agent, namespace_id", replaced_on_conflict(("told", "at")), where)


def divergences_put(divergences: Mapping[tuple[str, int], tuple[Any, float]]) -> None:
    rows = [
        (*agent_and_namespace, json_column(report), _moment(at))
        for agent_and_namespace, (report, at) in divergences.items()
    ]
    types, where = "agent text, namespace_id bigint, told jsonb, at timestamptz", "WHERE old.at <= excluded.at"
    _upsert(Divergence, types, rows, "agent, namespace_id", replaced_on_conflict(("told", "at")), where)


def refused_keep(refused: Mapping[str, Sequence[RefusedOne]], now: datetime, *, most: int) -> None:
    """Store the refused rows, and keep only the newest of each agent."""
    rows = [
        (agent, refusal.report, refusal.row, refusal.field[:60], refusal.problem[:300], _kept(refusal.told), now)
        for agent, refusals in refused.items()
        for refusal in refusals
    ]
    if not rows:
        return
    names, arrays = columns_sql(
        "agent text, report bigint, row integer, field text, problem text, told jsonb, at timestamptz"
    )
    quoted = names.replace("row", '"row"')
    _execute(
        f"INSERT INTO {RefusedRow._meta.db_table} ({quoted}) SELECT * FROM unnest({arrays})",  # noqa: S608
        _columns(rows),
    )
    _execute(REFUSED_FORGET, [most, sorted(refused)])


# Reads each agent's rows from the end of the index, newest first; rows after the `most` newest are old.
REFUSED_FORGET: Final = (
    "DELETE FROM analytics_refusedrow WHERE id = ANY(ARRAY(SELECT id FROM (SELECT id, "
    "row_number() OVER (PARTITION BY agent ORDER BY at DESC, id DESC) > %s AS is_old "
    "FROM analytics_refusedrow WHERE agent = ANY(%s)) AS numbered WHERE is_old))"
)


def _upsert(
    model: type[models.Model], types: str, rows: Sequence[Sequence[Any]], key: str, updates: str, where: str = ""
) -> None:
    if not rows:
        return
    names, arrays = columns_sql(types)
    _execute(
        f"INSERT INTO {model._meta.db_table} AS old ({names}) SELECT * FROM unnest({arrays}) "  # noqa: S608
        f"ON CONFLICT ({key}) DO UPDATE SET {updates} {where}",
        _columns(sorted(rows, key=lambda row: tuple(row[: key.count(",") + 1]))),
    )


def _kept(row: Any) -> str:
    try:
        encoded = canonical_json(row)
    except (ValueError, RecursionError):
        return "{}"
    return encoded.decode() if len(encoded) <= MOST_KEPT_BYTES else json_column({"bytes": len(encoded)})


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _execute(statement: str, values: Sequence[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
