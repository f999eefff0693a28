"""Write the newest heartbeat of each agent once a second, all in one statement that also reads the agents' rows.

A row that another transaction has locked is skipped: its heartbeat waits for the next write, but no other one does.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from controlplane.fleet.columns import columns_sql, json_column
from controlplane.fleet.health import AHEAD
from controlplane.fleet.known_agents import COLUMN_COUNT, COLUMNS, AgentNow, agent_now

_AHEAD = f"interval '{AHEAD.total_seconds():.0f} seconds'"  # our clock was set back since, so the stored time is void
_COLUMNS = "id text, heartbeat jsonb, boot text, sequence bigint, seen_at timestamptz, skew float8"


@dataclass(frozen=True, slots=True)
class Beat:
    agent: str
    told: Mapping[str, Any]
    seen_at: datetime
    skew_seconds: float  # by how much its clock is ahead of ours

    def is_newer_than(self, previous: "Beat") -> bool:
        """Return whether this heartbeat replaces `previous`. Between two boots, the order of arrival decides."""
        boot, sequence = previous.told["boot"], previous.told["sequence"]
        return bool(self.told["boot"] != boot or self.told["sequence"] > sequence)


class Newest:
    """The newest unwritten heartbeat of each agent."""

    def __init__(self) -> None:
        self._beats: dict[str, Beat] = {}

    def __bool__(self) -> bool:
        return bool(self._beats)

    def offer(self, beat: Beat) -> None:
        previous = self._beats.get(beat.agent)
        if previous is None or beat.is_newer_than(previous):
            self._beats[beat.agent] = beat

    def take(self) -> dict[str, Beat]:
        beats, self._beats = self._beats, {}
        return beats

    def put_back(self, beats: Iterable[Beat]) -> None:
        """Keep heartbeats that could not be written, except those that a newer one has replaced meanwhile."""
        for beat in beats:
            self._beats.setdefault(beat.agent, beat)


@dataclass(frozen=True, slots=True)
class Written:
    agents: list[AgentNow]
    fleet_size: int | None  # number of agents that may report, which sets the cadence; None if no agent was read
    passed_over: list[str]  # agents with a heartbeat that has to wait


def heartbeats_write(beats: Mapping[str, Beat], agent_ids: Collection[str]) -> Written:
    """Write the heartbeats, and return the current rows of their agents and of those in `agent_ids`."""
    names, arrays = columns_sql(_COLUMNS)
    with connection.cursor() as cursor:
        cursor.execute(
            _STATEMENT.format(names=names, arrays=arrays, columns=COLUMNS, ahead=_AHEAD),
            [*_columns(beats.values()), sorted({*beats, *agent_ids})],
        )
        rows = cursor.fetchall()
    agents = [agent_now(row) for row in rows]
    fleet_size = rows[0][COLUMN_COUNT] if rows else None
    passed_over = [row[0] for row in rows if row[0] in beats and not row[COLUMN_COUNT + 1]]
    return Written(agents, fleet_size, passed_over)


def _columns(beats: Collection[Beat]) -> list[list[Any]]:
    return [
        [beat.agent for beat in beats],
        [json_column(beat.told) for beat in beats],
        [beat.told["boot"] for beat in beats],
        [beat.told["sequence"] for beat in beats],
        [beat.seen_at for beat in beats],
        [beat.skew_seconds for beat in beats],
    ]


_STATEMENT = """
WITH news AS (SELECT * FROM unnest({arrays}) AS told({names})),
held AS (
    SELECT id FROM fleet_agent WHERE id IN (SELECT id FROM news) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
),
written AS (
    UPDATE fleet_agent AS agent
    SET heartbeat = news.heartbeat, heartbeat_boot = news.boot, heartbeat_sequence = news.sequence,
        last_seen_at = CASE WHEN agent.last_seen_at > news.seen_at + {ahead} THEN news.seen_at
            ELSE greatest(agent.last_seen_at, news.seen_at) END,
        clock_skew_seconds = news.skew
    FROM news JOIN held USING (id)
    WHERE agent.id = news.id AND (agent.heartbeat_boot <> news.boot OR agent.heartbeat_sequence < news.sequence)
)
SELECT {columns}, (SELECT count(*) FROM fleet_agent WHERE revoked_at IS NULL), held.id IS NOT NULL
FROM fleet_agent AS agent LEFT JOIN held USING (id)
WHERE agent.id = ANY(%s)
"""
