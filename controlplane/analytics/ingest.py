"""Stores agents' usage reports exactly once, in the transaction that also stores how far each spool was read.

Set-based: the number of statements depends neither on the number of rows nor of agents. Counts are added to existing
rows, so parts of a minute may arrive separately, late and in any order.

Lock order: the agents' rows, held by the caller, so that one transaction at a time writes an agent's rows; then the
hours written to, shared, which keeps rollups out; then rows, in the order of their keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final

from django.db import IntegrityError, connection, transaction
from psycopg.errors import CheckViolation

from controlplane.analytics.adding import MOST_SUM, added_on_conflict, sums_on_conflict
from controlplane.analytics.columns import ADDED, KEY_ADDED
from controlplane.analytics.displaced import Displaced
from controlplane.analytics.hours import hours_share, unroll
from controlplane.analytics.key_rows import KeyKey
from controlplane.analytics.notices import usage_notify
from controlplane.analytics.partitions import partitions_ensure
from controlplane.analytics.rows import CANARY_NUMBERS, Key, judge
from controlplane.analytics.series import KeySeriesKey, SeriesKey, key_series_ensure, series_ensure
from controlplane.analytics.stored import (
    counters_before,
    counters_put,
    curves_put,
    divergences_put,
    evictions_add,
    held_before,
    journals_before,
    journals_put,
    key_owners,
    ledger_add,
    namespace_places,
    namespaces_foreign,
    pins_put,
    pools_put,
    refused_keep,
    residences_put,
    totals_put,
)
from controlplane.analytics.tally import (
    RefusedOne,
    Sum,
    Tally,
    counters_told,
    journals_told,
    keys_told,
    namespaces_told,
)
from controlplane.common.metrics import usage_records_lost, usage_rows
from controlplane.fleet.recording import Heard
from engine_agent.contracts.wire import Report

MOST_REFUSED_TOLD: Final = 1_000  # reported back to an agent at a time, and kept of it
Told = Mapping[str, Sequence[tuple[int, Report]]]  # new reports with their numbers, by agent


def usage_store(reports_by_agent: Told, now: datetime) -> dict[str, Heard]:
    """Store the reports within the caller's transaction, and return by agent what was not counted."""
    tally = _tallied(reports_by_agent, now)
    hours_share(minute for _, _, minute in tally.minutes)
    _minutes_add(tally)
    _keys_add(tally)
    journals_put(tally.read, now)
    ledger_add(tally.ledger)
    totals_put(tally.totals, now)
    residences_put(tally.residences)
    counters_put(tally.displaced.now)
    evictions_add(tally.displaced.buckets)
    pins_put(tally.pins)
    pools_put(tally.pools)
    curves_put(tally.curves)
    divergences_put(tally.divergences)
    refused = {agent: rows[:MOST_REFUSED_TOLD] for agent, rows in tally.refused.items()}
    refused_keep(refused, now, most=MOST_REFUSED_TOLD)
    usage_notify(tally.organisations)
    transaction.on_commit(partial(_measure, tally))
    journal_positions = tally.stands
    return {
        agent: Heard(
            [refused_row.as_json() for refused_row in refused.get(agent, ())], journal_positions.get(agent, {})
        )
        for agent in refused.keys() | journal_positions.keys()
    }


def _tallied(reports_by_agent: Told, now: datetime) -> Tally:
    namespaces_by_agent = {
        agent: namespaces_told(report for _, report in reports) for agent, reports in reports_by_agent.items()
    }
    memberships = namespace_places(set().union(*namespaces_by_agent.values()))
    owners = {
        **{str(namespace): membership.organisation for namespace, membership in memberships.items()},
        **CANARY_NUMBERS,
    }
    foreign = namespaces_foreign(namespaces_by_agent, memberships)
    agents_with_levels = [
        agent for agent, reports in reports_by_agent.items() if any(report.kind == "levels" for _, report in reports)
    ]
    keys = key_owners(keys_told(report for reports in reports_by_agent.values() for _, report in reports))
    tally = Tally(
        judge(now, owners), now, held_before(agents_with_levels), journals_before(journals_told(reports_by_agent)), keys
    )
    tally.displaced = Displaced(counters_before(counters_told(reports_by_agent)))
    for agent, reports in reports_by_agent.items():
        tally.judge = judge(now, owners, map(str, foreign.get(agent, ())))
        for number, report in reports:
            tally.take(agent, number, report)
    return tally


def _minutes_add(tally: Tally) -> None:
    if not tally.minutes:
        return
    keys = {
        agent_and_key: _series_key(*agent_and_key)
        for agent_and_key in {(agent, key) for agent, key, _ in tally.minutes}
    }
    numbers = series_ensure(list(keys.values()))
    ids = {agent_and_key: numbers[key] for agent_and_key, key in keys.items()}
    rows = [(ids[agent, key], minute, minute_sum) for (agent, key, minute), minute_sum in tally.minutes.items()]
    statement, values = minutes_statement(sorted(rows, key=itemgetter(0, 1)))
    minutes = {minute for _, minute, _ in rows}
    _write(statement, values, minutes)
    unroll(minutes)


def _keys_add(tally: Tally) -> None:
    """Add the counts by key. `_minutes_add` has already unmarked the pieces of these minutes."""
    if not tally.by_key:
        return
    keys = {
        agent_and_key: _key_series_key(*agent_and_key)
        for agent_and_key in {(agent, key) for agent, key, _ in tally.by_key}
    }
    numbers = key_series_ensure(list(keys.values()))
    ids = {agent_and_key: numbers[key] for agent_and_key, key in keys.items()}
    rows = sorted((ids[agent, key], minute, added) for (agent, key, minute), added in tally.by_key.items())
    sums = (_bounded(column) for column in zip(*(added for _, _, added in rows), strict=True))
    values = [
        _array(column) for column in ([series for series, _, _ in rows], [minute for _, minute, _ in rows], *sums)
    ]
    _write(KEY_MINUTES_ADD, values, {minute for _, minute, _ in rows})


def _key_minutes_sql() -> str:
    into = ", ".join(["series_id", "minute", *KEY_ADDED])
    picked = ", ".join(["series_id", "to_timestamp(minute)", *KEY_ADDED])
    arrays = ", ".join(["%s::integer[]", *["%s::bigint[]"] * (1 + len(KEY_ADDED))])
    return (
        f"INSERT INTO analytics_keyminute AS old ({into}) SELECT {picked} FROM unnest({arrays}) AS told({into}) "  # noqa: S608
        f"ON CONFLICT (series_id, minute) DO UPDATE SET {sums_on_conflict(KEY_ADDED)}"
    )


KEY_MINUTES_ADD: Final = _key_minutes_sql()


def _write(statement: str, values: Sequence[str], minutes: Iterable[int]) -> None:
    """Execute the statement. If partitions of these minutes are missing, create them and try again."""
    try:
        with transaction.atomic():
            _execute(statement, values)
    except IntegrityError as error:
        if not isinstance(error.__cause__, CheckViolation):
            raise
        partitions_ensure(datetime.fromtimestamp(minute, UTC).date() for minute in minutes)
        _execute(statement, values)


def _key_series_key(agent: str, key: KeyKey) -> KeySeriesKey:
    return KeySeriesKey(key.namespace, agent, key.model, key.key, key.organisation)


def _series_key(agent: str, key: Key) -> SeriesKey:
    return SeriesKey(key.namespace, agent, key.model, key.kv_dtype, key.kind, key.organisation)


def minutes_statement(rows: Sequence[tuple[int, int, Sum]]) -> tuple[str, list[str]]:
    """Return a statement that adds to each series and minute, and its values.

    Empty columns are left out. Arrays are passed as text, which is joined at once rather than number by number.
    """
    columns = list(zip(*(minute_sum.added for _, _, minute_sum in rows), strict=True))
    used_columns = [index for index, column in enumerate(columns) if any(column)]
    names = [ADDED[index] for index in used_columns]
    numbers = [[series for series, _, _ in rows], [minute for _, minute, _ in rows]]
    sums = [_bounded(columns[index]) for index in used_columns]
    values = [*(_array(column) for column in (*numbers, *sums)), _arrays(minute_sum.times for _, _, minute_sum in rows)]
    return _minutes_sql(names), values


def _minutes_sql(names: Sequence[str]) -> str:
    into = ", ".join(["series_id", "minute", *names, "times"])
    picked = ", ".join(["series_id", "to_timestamp(minute)", *names, "times::bigint[]"])
    arrays = ", ".join(["%s::integer[]", *["%s::bigint[]"] * (1 + len(names)), "%s::text[]"])
    return (
        f"INSERT INTO analytics_minute AS old ({into}) SELECT {picked} FROM unnest({arrays}) AS told({into}) "  # noqa: S608
        f"ON CONFLICT (series_id, minute) DO UPDATE SET {added_on_conflict(names)}"
    )


def _bounded(column: Sequence[int]) -> Sequence[int]:
    return column if max(column) <= MOST_SUM else [min(count, MOST_SUM) for count in column]


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _arrays(lists: Iterable[Iterable[int]]) -> str:
    return "{" + ",".join(f'"{_array(numbers)}"' for numbers in lists) + "}"


def _execute(statement: str, values: Sequence[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def _measure(tally: Tally) -> None:
    usage_rows.labels("counted").inc(tally.counted_rows)
    usage_rows.labels("refused").inc(sum(map(_rows_refused, tally.refused.values())))
    usage_records_lost.inc(tally.lost_records)


def _rows_refused(refused: Sequence[RefusedOne]) -> int:
    return sum(refused_row.row >= 0 for refused_row in refused)
