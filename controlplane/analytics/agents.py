"""What was counted at single agents, and who holds how much of their pools: for operators alone. Selectors.

Agents tell how much a namespace holds, and not in which formats. Which formats its requests were computed in there is
counted, and said beside it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection

from controlplane.analytics.columns import CUSTOMER_KIND
from controlplane.analytics.models import PoolMinute

FORMATS_WITHIN: Final = timedelta(hours=1)
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
    """What a namespace holds on an agent, as that last told. `formats`: of its prompt tokens there, the most first."""

    namespace: str
    bytes: int
    at: datetime
    formats: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PoolHeld:
    """Of one agent: the namespaces that hold most, and what all others hold together."""

    top: tuple[Held, ...]
    others: int  # namespaces
    others_bytes: int


@dataclass(frozen=True, slots=True)
class FleetPools:
    """The namespaces that hold most of all pools together, and what each agent holds: of each of these in their order,
    then of all others."""

    top: tuple[Held, ...] = ()
    by_agent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    start: datetime
    hits: Hits


def hits_of_agents(agents: Collection[str], *, now: datetime, within: timedelta = HITS_WITHIN) -> dict[str, Hits]:
    """Customers' requests, of those that answered any."""
    sql = """
    SELECT series.agent, sum(minute.requests), sum(minute.prompt_tokens), sum(minute.cached_tokens)
    FROM analytics_minute minute JOIN analytics_series series ON series.id = minute.series_id
    WHERE minute.minute >= %s AND series.agent = ANY(%s) AND series.kind = %s
    GROUP BY series.agent
    """
    rows = _rows(sql, [_minute(now - within), list(agents), CUSTOMER_KIND])
    return {agent: Hits(*map(int, sums)) for agent, *sums in rows}


def hits_over(agent: str, *, now: datetime, within: timedelta, step: timedelta) -> list[Step]:
    """One agent's, by steps of time, without those in which nothing was asked."""
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
    """(minute, capacity, the most that was used in it), in bytes."""
    rows = PoolMinute.objects.filter(agent=agent, minute__gte=_minute(now - within)).order_by("minute")
    return list(rows.values_list("minute", "capacity_bytes", "used_bytes"))


def pools_held(agents: Collection[str], *, now: datetime, top: int) -> dict[str, PoolHeld]:
    """By agent, in two queries however many agents and namespaces there are."""
    sql = """
    WITH ranked AS (
        SELECT agent, namespace_id, resident_bytes, at,
            row_number() OVER (PARTITION BY agent ORDER BY resident_bytes DESC, namespace_id) AS place
        FROM analytics_residence WHERE agent = ANY(%(agents)s) AND resident_bytes > 0
    ), kept AS (
        SELECT agent, namespace_id, resident_bytes AS held, at, false AS is_others, 1 AS many
        FROM ranked WHERE place <= %(top)s
        UNION ALL
        SELECT agent, 0, sum(resident_bytes), max(at), true, count(*) FROM ranked WHERE place > %(top)s GROUP BY agent
    )
    SELECT agent, namespace_id, organisation.slug || '/' || namespace.slug, held, at, is_others, many
    FROM kept
    LEFT JOIN tenants_namespace namespace ON namespace.id = kept.namespace_id
    LEFT JOIN tenants_organisation organisation ON organisation.id = namespace.organisation_id
    ORDER BY agent, is_others, held DESC
    """
    rows = _rows(sql, {"agents": list(agents), "top": top})
    named = [(agent, namespace) for agent, namespace, *_, is_others, _ in rows if not is_others]
    formats = _formats(named, now=now)
    tops, others = defaultdict[str, list[Held]](list), dict[str, tuple[int, int]]()
    for agent, namespace, name, held, at, is_others, many in rows:
        if is_others:
            others[agent] = (int(many), int(held))
        else:
            asked = formats.get((agent, namespace), ())
            tops[agent].append(Held(name or "a deleted namespace", int(held), at, tuple(asked)))
    return {one: PoolHeld(tuple(tops[one]), *others.get(one, (0, 0))) for one in {*tops, *others}}


def fleet_pools(agents: Collection[str], *, now: datetime, top: int) -> FleetPools:
    """In two queries however many agents and namespaces there are."""
    sql = """
    WITH most AS (
        SELECT namespace_id, row_number() OVER (ORDER BY sum(resident_bytes) DESC, namespace_id) AS place
        FROM analytics_residence WHERE agent = ANY(%(agents)s) AND resident_bytes > 0
        GROUP BY namespace_id ORDER BY place LIMIT %(top)s
    )
    SELECT agent, coalesce(most.place, 0), coalesce(most.namespace_id, 0),
        max(organisation.slug || '/' || namespace.slug), sum(resident_bytes), max(at)
    FROM analytics_residence residence
    LEFT JOIN most ON most.namespace_id = residence.namespace_id
    LEFT JOIN tenants_namespace namespace ON namespace.id = most.namespace_id
    LEFT JOIN tenants_organisation organisation ON organisation.id = namespace.organisation_id
    WHERE agent = ANY(%(agents)s) AND resident_bytes > 0
    GROUP BY 1, 2, 3
    """
    rows = _rows(sql, {"agents": list(agents), "top": top})
    named = {place: (number, name or "a deleted namespace") for _, place, number, name, *_ in rows if place}
    sizes, told = defaultdict[str, dict[int, int]](dict), dict[int, datetime]()
    for agent, place, _, _, held, at in rows:
        sizes[agent][place] = int(held)
        told[place] = max(at, told.get(place, at))
    asked = _formats([(agent, named[place][0]) for agent, place, *_ in rows if place], now=now)
    order = sorted(named)
    tops = tuple(
        Held(
            named[one][1], sum(held.get(one, 0) for held in sizes.values()), told[one], _together(asked, named[one][0])
        )
        for one in order
    )
    by_agent = {agent: (*(held.get(one, 0) for one in order), held.get(0, 0)) for agent, held in sizes.items()}
    return FleetPools(tops, by_agent)


def _together(
    asked: Mapping[tuple[str, int], Sequence[tuple[str, int]]], namespace: int
) -> tuple[tuple[str, int], ...]:
    """At all agents."""
    tokens = Counter[str]()
    for (_, one), found in asked.items():
        if one == namespace:
            tokens.update(dict(found))
    return tuple(tokens.most_common())


def _formats(places: Collection[tuple[str, int]], *, now: datetime) -> Mapping[tuple[str, int], list[tuple[str, int]]]:
    """Prompt tokens by format, of these namespaces at these agents."""
    if not places:
        return {}
    sql = """
    SELECT series.agent, series.namespace_id, series.kv_dtype, sum(minute.prompt_tokens) AS tokens
    FROM unnest(%s::text[], %s::bigint[]) AS place(agent, namespace_id)
    JOIN analytics_series series USING (agent, namespace_id)
    JOIN analytics_minute minute ON minute.series_id = series.id AND minute.minute >= %s
    WHERE series.kind = %s AND series.kv_dtype <> ''
    GROUP BY 1, 2, 3 HAVING sum(minute.prompt_tokens) > 0 ORDER BY tokens DESC
    """
    agents, namespaces = zip(*places, strict=True)
    found = defaultdict[tuple[str, int], list[tuple[str, int]]](list)
    for agent, namespace, kv_dtype, tokens in _rows(
        sql, [list(agents), list(namespaces), _minute(now - FORMATS_WITHIN), CUSTOMER_KIND]
    ):
        found[agent, namespace].append((kv_dtype, int(tokens)))
    return found


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _rows(sql: str, asked: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, asked)
        return cursor.fetchall()  # type: ignore[no-any-return]
