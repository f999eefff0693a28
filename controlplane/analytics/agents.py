"""Hits of single agents, and the namespaces that use their pools, by KV format: for operators. Selectors."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection

from controlplane.analytics.columns import CUSTOMER_KIND
from controlplane.analytics.models import PoolMinute

HITS_WITHIN: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Hits:
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def ratio(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True, slots=True)
class Held:
    """A namespace's cached bytes in one KV format, as last reported. `kv_dtype` is empty if no format was reported."""

    namespace: str
    kv_dtype: str
    bytes: int
    at: datetime


@dataclass(frozen=True, slots=True)
class PoolHeld:
    """One agent's pool: the namespaces by format with the most bytes, and the sum of all others."""

    top: tuple[Held, ...]
    others: int
    others_bytes: int


@dataclass(frozen=True, slots=True)
class FleetPools:
    """The namespaces by format with the most bytes in all pools, and each agent's bytes.

    `by_agent` has the bytes of each entry of `top`, in order, and then those of all others.
    """

    top: tuple[Held, ...] = ()
    by_agent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    start: datetime
    hits: Hits


def hits_of_agents(agents: Collection[str], *, now: datetime, within: timedelta = HITS_WITHIN) -> dict[str, Hits]:
    """Return the hits of customers' requests, for the agents that answered any."""
    sql = """
    SELECT series.agent, sum(minute.requests), sum(minute.prompt_tokens), sum(minute.cached_tokens)
    FROM analytics_minute minute JOIN analytics_series series ON series.id = minute.series_id
    WHERE minute.minute >= %s AND series.agent = ANY(%s) AND series.kind = %s
    GROUP BY series.agent
    """
    rows = _rows(sql, [_minute(now - within), list(agents), CUSTOMER_KIND])
    return {agent: Hits(*map(int, sums)) for agent, *sums in rows}


def hits_over(agent: str, *, now: datetime, within: timedelta, step: timedelta) -> list[Step]:
    """Return one agent's hits by steps of time, without steps that had no requests."""
    sql = """
    SELECT date_bin(%s, minute.minute, 'epoch') AS start,
        sum(minute.requests), sum(minute.prompt_tokens), sum(minute.cached_tokens)
    FROM analytics_minute minute JOIN analytics_series series ON series.id = minute.series_id
    WHERE minute.minute >= %s AND series.agent = %s AND series.kind = %s
    GROUP BY 1 ORDER BY 1
    """
    rows = _rows(sql, [step, _minute(now - within), agent, CUSTOMER_KIND])
    return [Step(start, Hits(*map(int, sums))) for start, *sums in rows]


def pool_over(agent: str, *, now: datetime, within: timedelta) -> list[tuple[datetime, int, int]]:
    """Return (minute, capacity, highest use in that minute), in bytes."""
    rows = PoolMinute.objects.filter(agent=agent, minute__gte=_minute(now - within)).order_by("minute")
    return list(rows.values_list("minute", "capacity_bytes", "used_bytes"))


# Cached bytes of each namespace on each agent, by format; one row without a format if the agent reports none.
PARTS: Final = """
    SELECT agent, namespace_id, coalesce(told.kv_dtype, '') AS kv_dtype, coalesce(told.size, resident_bytes) AS size, at
    FROM analytics_residence
    LEFT JOIN LATERAL (SELECT key AS kv_dtype, value::bigint AS size FROM jsonb_each_text(formats)) AS told ON true
    WHERE agent = ANY(%(agents)s) AND resident_bytes > 0
"""


def pools_held(agents: Collection[str], *, top: int) -> dict[str, PoolHeld]:
    """Return each agent's pool use, in one query for any number of agents and namespaces."""
    sql = f"""
    WITH part AS ({PARTS}), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY agent ORDER BY size DESC, namespace_id, kv_dtype) AS place FROM part
    ), kept AS (
        SELECT agent, namespace_id, kv_dtype, size, at, false AS is_others, 1 AS many FROM ranked WHERE place <= %(top)s
        UNION ALL
        SELECT agent, 0, '', sum(size), max(at), true, count(DISTINCT namespace_id) FILTER (
            WHERE (agent, namespace_id) NOT IN (SELECT agent, namespace_id FROM ranked WHERE place <= %(top)s)
        )
        FROM ranked WHERE place > %(top)s GROUP BY agent
    )
    SELECT agent, organisation.slug || '/' || namespace.slug, kv_dtype, size, at, is_others, many
    FROM kept
    LEFT JOIN tenants_namespace namespace ON namespace.id = kept.namespace_id
    LEFT JOIN tenants_organisation organisation ON organisation.id = namespace.organisation_id
    ORDER BY agent, is_others, size DESC, namespace_id, kv_dtype
    """  # noqa: S608  # names are ours
    tops, rest_by_agent = defaultdict[str, list[Held]](list), dict[str, tuple[int, int]]()
    for agent, name, kv_dtype, size, at, is_rest, namespace_count in _rows(sql, {"agents": list(agents), "top": top}):
        if is_rest:
            rest_by_agent[agent] = (int(namespace_count), int(size))
        else:
            tops[agent].append(Held(name or "a deleted namespace", kv_dtype, int(size), at))
    return {agent: PoolHeld(tuple(tops[agent]), *rest_by_agent.get(agent, (0, 0))) for agent in {*tops, *rest_by_agent}}


def fleet_pools(agents: Collection[str], *, top: int) -> FleetPools:
    """Return the fleet's pool use, in one query for any number of agents and namespaces."""
    sql = f"""
    WITH part AS ({PARTS}), most AS (
        SELECT namespace_id, kv_dtype, row_number() OVER (ORDER BY sum(size) DESC, namespace_id, kv_dtype) AS place
        FROM part GROUP BY namespace_id, kv_dtype ORDER BY place LIMIT %(top)s
    )
    SELECT agent, coalesce(most.place, 0), max(organisation.slug || '/' || namespace.slug), max(most.kv_dtype),
        sum(size), max(at)
    FROM part
    LEFT JOIN most ON most.namespace_id = part.namespace_id AND most.kv_dtype = part.kv_dtype
    LEFT JOIN tenants_namespace namespace ON namespace.id = most.namespace_id
    LEFT JOIN tenants_organisation organisation ON organisation.id = namespace.organisation_id
    GROUP BY 1, 2
    """  # noqa: S608  # names are ours
    sizes, names, reported_at = (
        defaultdict[str, dict[int, int]](dict),
        dict[int, tuple[str, str]](),
        dict[int, datetime](),
    )
    for agent, rank, name, kv_dtype, size, at in _rows(sql, {"agents": list(agents), "top": top}):
        sizes[agent][rank] = int(size)
        reported_at[rank] = max(at, reported_at.get(rank, at))
        names[rank] = (name or "a deleted namespace", kv_dtype or "")
    ranks = sorted(rank for rank in names if rank)
    tops = tuple(
        Held(*names[rank], sum(agent_sizes.get(rank, 0) for agent_sizes in sizes.values()), reported_at[rank])
        for rank in ranks
    )
    by_agent = {
        agent: (*(agent_sizes.get(rank, 0) for rank in ranks), agent_sizes.get(0, 0))
        for agent, agent_sizes in sizes.items()
    }
    return FleetPools(tops, by_agent)


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _rows(sql: str, parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()  # type: ignore[no-any-return]
