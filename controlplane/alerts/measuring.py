"""Current readings of each metric, for every existing subject.

Set-based SQL: a constant number of queries, for any number of agents, namespaces and rules. Changes nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection

from controlplane.alerts.anchoring import Anchored, anchors_seen
from controlplane.alerts.definitions import KEPT_SECONDS, RECENT_SECONDS, TRAFFIC_SECONDS
from controlplane.alerts.evaluate import UNKNOWN, Reading
from controlplane.alerts.subjects import AgentSeen, Living, Subject
from controlplane.analytics.columns import CACHE_KIND, CUSTOMER_KIND
from controlplane.analytics.reconciliations import ToldDifference, differences_now, reconciliation_newest
from controlplane.fleet.canaries import isolations_read

Measured = Mapping[str, tuple[Subject, Reading]]  # by the subject's key
LEAST_A_SECOND: Final = 100 / RECENT_SECONDS  # blocks; fewer are negligible
LEAST_MEAN: Final = 1 / 60  # blocks a second
MEAN_HOURS: Final = 24
INTEGRITY_SECONDS: Final = 86_400
POOL_SECONDS: Final = 180  # an agent reports levels at least every minute; older ones are out of date
DRIFTING: Final = ("rejected", "unknown_hash", "engine_differs", "behind")  # conditions of fleet/health.py


def measured(living: Living, *, now: datetime) -> Mapping[str, Measured]:
    """Return the readings by metric. If a value is unknown, its subject has a reading without a value."""
    return {name: measure(living, now) for name, measure in MEASURES.items()}


# Metrics of agents


def _pool_use(living: Living, now: datetime) -> Measured:
    """Return the pool use in each agent's newest minute. Idle blocks count as free, since they can be evicted for
    anyone."""
    sql = """
    SELECT DISTINCT ON (agent) agent, (used_bytes - evictable_bytes)::float8 / nullif(capacity_bytes, 0)
    FROM analytics_poolminute WHERE minute >= %s ORDER BY agent, minute DESC
    """
    return _agents(living, _by_key(sql, [now - timedelta(seconds=POOL_SECONDS)]))


def _preemptions(living: Living, now: datetime) -> Measured:
    """Return how far each agent's counter rose, boot by boot, since its last row before the window.

    A later boot without such a row counts from 0. The agent's first known boot counts from its first reported value.
    """
    since = _since(now, RECENT_SECONDS)
    parameters = [since, since, since - timedelta(seconds=KEPT_SECONDS)]
    return _agents(living, _by_key(PREEMPTED_RECENTLY, parameters))


PREEMPTED_RECENTLY: Final = """
SELECT agent, sum(newest - coalesce(before, CASE WHEN is_later THEN 0 ELSE least END))::float8 FROM (
    SELECT agent, max(preemptions) FILTER (WHERE minute >= %s) AS newest,
        max(preemptions) FILTER (WHERE minute < %s) AS before, min(preemptions) AS least,
        min(minute) > min(min(minute)) OVER (PARTITION BY agent) AS is_later
    FROM analytics_poolminute WHERE minute >= %s GROUP BY agent, boot
) boots WHERE newest IS NOT NULL GROUP BY agent
"""


def _silence(living: Living, now: datetime) -> Measured:
    return _from_conditions(living, now, ("stale",))


def _drift(living: Living, now: datetime) -> Measured:
    return _from_conditions(living, now, DRIFTING)


def _disk_wait(living: Living, now: datetime) -> Measured:
    return _from_conditions(living, now, ("unwritable",))


def _clock_skew(living: Living, now: datetime) -> Measured:
    """Return the clock skew of each agent; unknown for agents that have never reported."""
    reporting_agents = {name: agent for name, agent in living.agents.items() if agent.last_seen_at is not None}
    return _agents(living, {name: abs(agent.clock_skew_seconds) for name, agent in reporting_agents.items()})


def _integrity(living: Living, now: datetime) -> Measured:
    """Return how many problems each agent's newest check found. Checks that did not run or got no answer do not
    count."""
    sql = """
    SELECT DISTINCT ON (agent_id) agent_id, jsonb_array_length(receipt #> '{result,problems}')::float8
    FROM fleet_operationstep
    WHERE deed = 'integrity' AND jsonb_typeof(receipt #> '{result,problems}') = 'array' AND done_at >= %s
    ORDER BY agent_id, done_at DESC
    """
    return _agents(living, _by_key(sql, [now - timedelta(seconds=INTEGRITY_SECONDS)]))


def _isolation(living: Living, now: datetime) -> Measured:
    """Return how many probe rounds of each agent leaked. Rounds without a verdict do not count."""
    isolations = isolations_read(list(living.agents), now=now)
    leaked_rounds = {
        agent: float(isolation.rounds["leaked"]) for agent, isolation in isolations.items() if isolation.is_told
    }
    return _agents(living, leaked_rounds)


def _isolation_timing(living: Living, now: datetime) -> Measured:
    isolations = isolations_read(list(living.agents), now=now)
    return _agents(
        living,
        {agent: isolation.timing.advantage for agent, isolation in isolations.items() if isolation.timing is not None},
    )


def _refused_rows(living: Living, now: datetime) -> Measured:
    sql = "SELECT agent, count(*)::float8 FROM analytics_refusedrow WHERE agent = ANY(%s) AND at >= %s GROUP BY agent"
    counts = _by_key(sql, [list(living.agents), now - timedelta(seconds=TRAFFIC_SECONDS)])
    return _agents(living, counts, otherwise=0.0)


# Metrics of namespaces


def _hit_ratio(living: Living, now: datetime) -> Measured:
    sql = """
    SELECT series.namespace_id,
        sum(minute.cached_tokens) FILTER (WHERE minute.minute >= %s)::float8
            / nullif(sum(minute.prompt_tokens) FILTER (WHERE minute.minute >= %s), 0),
        least(sum(minute.prompt_tokens), 1::bigint << 62)::bigint
    FROM analytics_minute minute JOIN analytics_series series ON series.id = minute.series_id
    WHERE minute.minute >= %s AND series.kind = %s GROUP BY series.namespace_id
    """
    recent = _since(now, RECENT_SECONDS)
    rows = _rows(sql, [recent, recent, _since(now, TRAFFIC_SECONDS), CUSTOMER_KIND])
    readings = {namespace: Reading(ratio, tokens) for namespace, ratio, tokens in rows}
    return {subject.key: (subject, readings.get(pk, UNKNOWN)) for pk, subject in living.namespaces.items()}


def _evictions(living: Living, now: datetime) -> Measured:
    """Return the eviction rate relative to its mean over those of the last 24 whole hours that are rolled up.

    Unknown until the first hour is rolled up.
    """
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [hour - timedelta(hours=count) for count in range(1, MEAN_HOURS + 1)]
    ((rolled,),) = _rows("SELECT count(*) FROM analytics_rolled WHERE level = 3600 AND start = ANY(%s)", [hours])
    evicted_before = _by_key(EVICTED_BEFORE, [hours, CACHE_KIND])
    since = _since(now, RECENT_SECONDS)
    evicted_recently, seconds = _by_key(EVICTED_RECENTLY, [since, CACHE_KIND]), (now - since).total_seconds()

    def reading(namespace: int) -> Reading:
        if not rolled:
            return UNKNOWN
        mean = max((evicted_before.get(namespace) or 0.0) / (rolled * 3600), LEAST_MEAN)
        rate = (evicted_recently.get(namespace) or 0.0) / seconds
        return Reading(rate / mean if rate >= LEAST_A_SECOND else 0.0)

    return {subject.key: (subject, reading(pk)) for pk, subject in living.namespaces.items()}


EVICTED_BEFORE: Final = """
SELECT series.namespace_id, sum(piece.evicted_blocks)::float8
FROM analytics_piece piece JOIN analytics_series series ON series.id = piece.series_id
JOIN analytics_rolled rolled ON rolled.level = piece.level AND rolled.start = piece.start
WHERE piece.level = 3600 AND piece.start = ANY(%s) AND series.kind = %s AND series.namespace_id <> 0 GROUP BY 1
"""
EVICTED_RECENTLY: Final = """
SELECT series.namespace_id, sum(minute.evicted_blocks)::float8
FROM analytics_minute minute JOIN analytics_series series ON series.id = minute.series_id
WHERE minute.minute >= %s AND series.kind = %s GROUP BY 1
"""


# Metrics of agent and namespace, and of the fleet


def _reconciliation(living: Living, now: datetime) -> Measured:
    """Return only the subjects with differences; a missing subject is equal again.

    Leaves out differences explained by refused rows, which have an alert of their own.
    """
    readings: dict[str, tuple[Subject, Reading]] = {}
    for difference in differences_now():
        subject = _differs_at(living, difference)
        tokens = float(difference["tokens"] or abs(difference["difference"]["requests"]))
        if not difference["is_explained"] and tokens > (
            readings[subject.key][1].value or 0 if subject.key in readings else 0
        ):
            readings[subject.key] = (subject, Reading(tokens))
    return readings


def _reconciliation_age(living: Living, now: datetime) -> Measured:
    """Return the age of the newest comparison that finished."""
    newest = reconciliation_newest()
    subject = Subject("numbers", "the fleet", 0)
    return {subject.key: (subject, Reading(None if newest is None else (now - newest.at).total_seconds()))}


def _audit_anchors(living: Living, now: datetime) -> Measured:
    return _of_the_trail(lambda anchored: float(len(anchored.problems)))


def _audit_anchor_age(living: Living, now: datetime) -> Measured:
    def age(anchored: Anchored) -> float:
        return 0.0 if anchored.since is None else (now - anchored.since).total_seconds()

    return _of_the_trail(age)


def _of_the_trail(measure: Callable[[Anchored], float]) -> Measured:
    file = settings.ENVIRONMENT.anchors.file
    subject = Subject("audit", "the audit trail", 0)
    return {subject.key: (subject, UNKNOWN if file is None else Reading(measure(anchors_seen(file))))}


def _differs_at(living: Living, difference: ToldDifference) -> Subject:
    """Return the subject of a difference: an agent's numbers of one namespace, or the fleet's.

    It has no organisation, so only operators see the alert, even if the namespace belongs to a customer.
    """
    agent, namespace = difference["agent"] or "", difference["namespace"] or f"namespace {difference['namespace_id']}"
    scope_name = namespace if difference["namespace_id"] else "the fleet"
    group = living.agents[agent].subject.group_id if agent in living.agents else 0
    return Subject(
        f"{agent or '-'} {difference['namespace_id']}", f"{agent}: {scope_name}" if agent else scope_name, group, agent
    )


MEASURES: Final[Mapping[str, Callable[[Living, datetime], Measured]]] = {
    "pool_use": _pool_use,
    "hit_ratio": _hit_ratio,
    "evictions": _evictions,
    "preemptions": _preemptions,
    "silence": _silence,
    "drift": _drift,
    "disk_wait": _disk_wait,
    "clock_skew": _clock_skew,
    "reconciliation": _reconciliation,
    "reconciliation_age": _reconciliation_age,
    "audit_anchors": _audit_anchors,
    "audit_anchor_age": _audit_anchor_age,
    "isolation": _isolation,
    "isolation_timing": _isolation_timing,
    "integrity": _integrity,
    "refused_rows": _refused_rows,
}


def _since(now: datetime, seconds: int) -> datetime:
    """Return the first minute to read: whole minutes, and the current one in addition."""
    return now.replace(second=0, microsecond=0) - timedelta(seconds=seconds)


def _agents(living: Living, values_by_agent: Mapping[Any, float | None], *, otherwise: float | None = None) -> Measured:
    return {
        agent.subject.key: (agent.subject, Reading(values_by_agent.get(name, otherwise)))
        for name, agent in living.agents.items()
    }


def _from_conditions(living: Living, now: datetime, kinds: Iterable[str]) -> Measured:
    seconds_by_agent = {name: _lasting(agent, now, kinds) for name, agent in living.agents.items()}
    return _agents(living, seconds_by_agent)


def _lasting(agent: AgentSeen, now: datetime, kinds: Iterable[str]) -> float | None:
    """Return how many seconds the oldest of these conditions has lasted; None if the agent has never reported."""
    if agent.last_seen_at is None:
        return None
    starts = [datetime.fromisoformat(agent.conditions[kind]["since"]) for kind in kinds if kind in agent.conditions]
    return max(((now - start).total_seconds() for start in starts), default=0.0)


def _by_key(sql: str, parameters: Sequence[Any]) -> dict[Any, float | None]:
    return {row[0]: row[1] for row in _rows(sql, parameters)}


def _rows(sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
