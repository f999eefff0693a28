"""The cache of agents that the agent API knows, by token hash, as they were when last read from the database.

Entries expire, and then the database is asked again: a revocation must take effect even if refreshing fails for a
while.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controlplane.fleet.known_agents import AgentNow

BELIEVED_SECONDS = 10.0
REMEMBERED_SECONDS = 60.0  # since the agent's last request


@dataclass(slots=True)
class _Entry:
    agent: AgentNow
    read_at: float
    heard_at: float


class Roster:
    """Known agents. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, _Entry] = {}
        self._by_id: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def ids(self) -> list[str]:
        return list(self._by_id)

    def get(self, agent: str) -> AgentNow | None:
        entry = self._by_id.get(agent)
        return None if entry is None else entry.agent

    def find(self, token_hash: bytes, *, now: float) -> AgentNow | None:
        entry = self._by_hash.get(token_hash)
        if entry is None or now - entry.read_at > BELIEVED_SECONDS:
            return None
        entry.heard_at = now
        return entry.agent

    def put(self, agent: AgentNow, *, read_at: float, heard_at: float) -> None:
        self._forget(agent.id)
        entry = _Entry(agent, read_at, heard_at)
        self._by_hash[agent.token_hash] = self._by_id[agent.id] = entry

    def refresh(self, agent_ids: Iterable[str], agents: Iterable[AgentNow], *, now: float) -> None:
        """Update the entries of the agents in `agent_ids`.

        Remove agents that are revoked, gone, long silent, or have another token.
        """
        agents_by_id = {agent.id: agent for agent in agents}
        for agent_id in agent_ids:
            entry, agent = self._by_id.get(agent_id), agents_by_id.get(agent_id)
            if entry is None:
                continue
            is_silent = now - entry.heard_at > REMEMBERED_SECONDS
            if agent is None or agent.is_revoked or agent.token_hash != entry.agent.token_hash or is_silent:
                self._forget(agent_id)
            else:
                # A commit may have raised the number since the database was read.
                is_behind = entry.agent.spool == agent.spool and entry.agent.number > agent.number
                entry.agent = replace(agent, number=entry.agent.number) if is_behind else agent
                entry.read_at = now

    def acknowledged(self, agent: str, *, spool: str, number: int, desired_hash: str, desired_generation: int) -> None:
        entry = self._by_id.get(agent)
        if entry is not None:
            entry.agent = replace(
                entry.agent,
                spool=spool,
                number=number,
                desired_hash=desired_hash,
                desired_generation=desired_generation,
            )

    def _forget(self, agent: str) -> None:
        entry = self._by_id.pop(agent, None)
        if entry is not None:
            self._by_hash.pop(entry.agent.token_hash, None)
