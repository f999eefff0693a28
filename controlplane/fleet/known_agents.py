"""Agents as the agent API needs them for its answers, and lookup of agents by token, many in one query. Reads only."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

COLUMNS = (
    "agent.id, agent.kind, group_id, token_hash, revoked_at IS NOT NULL, "
    "desired_hash, desired_generation, spool, spool_number"
)
COLUMN_COUNT = 9


@dataclass(frozen=True, slots=True)
class AgentNow:
    id: str
    kind: str
    group: int
    token_hash: bytes = field(repr=False)
    is_revoked: bool
    desired_hash: str
    desired_generation: int
    spool: str
    number: int


def agent_now(row: tuple[Any, ...]) -> AgentNow:
    """Build an AgentNow from a row that starts with COLUMNS."""
    name, kind, group, token_hash, *rest = row[:COLUMN_COUNT]
    return AgentNow(name, kind, group, bytes(token_hash), *rest)


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The agent that a token belongs to. `is_next`: the token is new, and its first use ends the old one."""

    agent: AgentNow
    is_next: bool


def token_owners(hashes: Collection[bytes]) -> dict[bytes, TokenOwner]:
    """Return the owners by token hash. Hashes without an owner are left out."""
    sorted_hashes = sorted(hashes)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {COLUMNS}, next_token_hash FROM fleet_agent AS agent "  # noqa: S608  # names are ours
            "WHERE token_hash = ANY(%s) OR next_token_hash = ANY(%s)",
            [sorted_hashes, sorted_hashes],
        )
        rows = cursor.fetchall()
    owners: dict[bytes, TokenOwner] = {}
    for row in rows:
        agent, next_token_hash = agent_now(row), row[COLUMN_COUNT]
        owners[agent.token_hash] = TokenOwner(agent, is_next=False)
        if next_token_hash is not None:
            owners[bytes(next_token_hash)] = TokenOwner(agent, is_next=True)
    return owners
