"""Pools and the top changes in hit rate, for the operators' overview. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.analytics.movers import Moved, Movement
from controlplane.dashboard.fleet.rows import percent_used, sync_tag
from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.states import Tag
from controlplane.dashboard.frame.tiles import LEAST_POINTS, measured
from controlplane.dashboard.frame.words import counted, duration
from controlplane.dashboard.policies.enforcement_words import with_fleet_words

MOST_POOLS = 8
MOST_LINES = 5
Seen = Mapping[str, Any]  # the result of fleet.views.agent_view


@dataclass(frozen=True, slots=True)
class Pools:
    title: str
    note: str
    rows: Sequence[tuple[Seen, int | None, Tag]]  # agent, how full its pool is in percent, whether it is in sync
    unshown: int


@dataclass(frozen=True, slots=True)
class Movers:
    """The organisations with the top changes, computed once a minute: `as_of` may be older than other numbers."""

    title: str
    note: str
    as_of: datetime
    rows: Sequence[tuple[Moved, float]] = ()  # with the size of the change in points, without its sign


def pools(agents: Sequence[Mapping[str, Any]]) -> Pools:
    """Return the fullest engines' pools, sorted by name so that none moves, and how many agents are in sync."""
    engines = [agent for agent in agents if agent["kind"] == "engine"]
    fullest = sorted(engines, key=lambda engine: (-(percent_used(engine["pool"]) or 0), engine["id"]))[:MOST_POOLS]
    rows = [
        (engine, percent_used(engine["pool"]), sync_tag(engine))
        for engine in sorted(fullest, key=lambda engine: engine["id"])
    ]
    return Pools(with_fleet_words(sync_title(agents), agents), _pools_note(engines), rows, len(engines) - len(rows))


def sync_title(agents: Sequence[Mapping[str, Any]]) -> str:
    if not agents:
        return "No agent has joined yet"
    in_sync = sum(agent["in_sync"] for agent in agents)
    return f"{in_sync} of {counted(len(agents), 'agent')} {'is' if in_sync == 1 else 'are'} in sync"


def _pools_note(engines: Sequence[Mapping[str, Any]]) -> str:
    reported_pools = [engine["pool"] for engine in engines if percent_used(engine["pool"]) is not None]
    if not reported_pools:
        return "no pool has been told of"
    used, capacity = (sum(pool[name] for pool in reported_pools) for name in ("used_bytes", "capacity_bytes"))
    return f"pools hold {bytes_text(used)} of {bytes_text(capacity)}, {100 * used // capacity} %"


def movers(movement: Movement) -> Movers:
    day = duration(movement.window_seconds)
    note = f"hit rate of {day} against the {day} before, organisations with 20 requests or more in both"
    if movement.covered_seconds < movement.window_seconds:
        counted_time = measured(movement.covered_seconds, movement.window_seconds)
        words = "has not been counted" if not movement.covered_seconds else f"has been counted for {counted_time}"
        return Movers("Nothing to compare with yet", f"the day before {words}", movement.as_of)
    moved = [row for row in movement.rows if abs(row.points) >= LEAST_POINTS]
    if not moved:
        return Movers("No organisation’s hit rate moved", note, movement.as_of)
    top_row = moved[0]
    verb = "gained" if top_row.points > 0 else "lost"
    title = f"{top_row.slug} {verb} most: {abs(top_row.points):.1f} points"
    return Movers(title, note, movement.as_of, [(row, abs(row.points)) for row in moved])
