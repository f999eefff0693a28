"""The part of a bake that is stored between two sweeps: every watched agent's counters, on both sides. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from controlplane.rollouts.evidence import (
    Side,
    Watched,
    counts_read,
    side_of,
    side_read,
    side_stored,
    watched_on,
    watched_read,
    watched_stored,
)

MOST_UNCHANGED = 100  # agents to compare with; more would prove little, and all are stored


@dataclass(frozen=True, slots=True)
class AgentNews:
    """An agent's newest heartbeat about one level.

    `rejected` and `silent` are problems, empty if there is no problem.
    """

    agent: str
    kind: str
    boot: str
    counted: Mapping[str, Any] | None  # in the form of wire.py; None if it does not count that level yet
    is_up_to_date: bool  # its heartbeat is from after its last acknowledgement
    rejected: str = ""
    silent: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """Both sides of a bake. `applied_at`: since when each changed agent has the new policy, in unix seconds."""

    changed: Mapping[str, Watched] = field(default_factory=dict)
    unchanged: Mapping[str, Watched] = field(default_factory=dict)
    applied_at: Mapping[str, float] = field(default_factory=dict)
    grace_seconds: float = 0.0

    @classmethod
    def read(cls, evidence: Mapping[str, Any]) -> "Counted":
        return cls(
            changed=_read(evidence.get("changed", {})),
            unchanged=_read(evidence.get("unchanged", {})),
            applied_at=evidence.get("applied_at", {}),
            grace_seconds=evidence.get("grace_seconds", 0),
        )

    def stored(self) -> dict[str, Any]:
        return {
            "changed": {agent: watched_stored(watched) for agent, watched in self.changed.items()},
            "unchanged": {agent: watched_stored(watched) for agent, watched in self.unchanged.items()},
        }

    def sides(self) -> tuple[Side, Side]:
        """Return the sums of the reached agents and of the others."""
        return side_of(self.changed.values()), side_of(self.unchanged.values())

    def is_cold(self, agent: str, now: float) -> bool:
        """Return whether misses of another format at this agent are still caused by the change itself."""
        since = self.applied_at.get(agent)
        return since is not None and now < since + self.grace_seconds


def sides_read(evidence: Mapping[str, Any]) -> tuple[Side, Side]:
    """Return the sums of the reached agents and of the others, from an open or ended rollout."""
    if "sides" in evidence:
        changed, unchanged = evidence["sides"]
        return side_read(changed), side_read(unchanged)
    return Counted.read(evidence).sides()


def closed(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the evidence to keep of an ended rollout: the sums, without every agent's counters."""
    summary = {name: part for name, part in evidence.items() if name not in ("changed", "unchanged", "applied_at")}
    return summary | {"sides": [side_stored(side) for side in sides_read(evidence)]}


def counted_on(
    previous: Counted, agents: Sequence[AgentNews], reached_agents: Collection[str], *, seed: str, now: float
) -> Counted:
    """Add the agents' newest heartbeats. An agent that is gone stays with its last counters."""
    engines = [news for news in agents if news.kind == "engine" and news.counted is not None and news.boot]
    changed, unchanged = dict(previous.changed), dict(previous.unchanged)
    for news in engines:
        if news.agent in reached_agents and news.is_up_to_date:
            changed[news.agent] = _on(previous.changed.get(news.agent), news, previous.is_cold(news.agent, now))
    unreached = [news for news in engines if news.agent not in reached_agents]
    for news in sorted(
        unreached, key=lambda candidate: (candidate.agent not in unchanged, _place(seed, candidate.agent))
    ):
        if news.agent in unchanged or len(unchanged) < MOST_UNCHANGED:
            unchanged[news.agent] = _on(previous.unchanged.get(news.agent), news, False)
    return Counted(changed, unchanged, previous.applied_at, previous.grace_seconds)


def _read(stored: Mapping[str, Any]) -> dict[str, Watched]:
    watched_agents = ((agent, watched_read(counters)) for agent, counters in stored.items())
    return {agent: watched for agent, watched in watched_agents if watched is not None}


def _on(previous: Watched | None, news: AgentNews, is_cold: bool) -> Watched:
    assert news.counted is not None
    return watched_on(previous, news.boot, counts_read(news.counted), is_cold=is_cold)


def _place(seed: str, agent: str) -> bytes:
    return sha256(f"{seed}\0unchanged\0{agent}".encode()).digest()
