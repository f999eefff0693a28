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
            "changed": {agent: watched_stored(one) for agent, one in self.changed.items()},
            "unchanged": {agent: watched_stored(one) for agent, one in self.unchanged.items()},
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
    kept = {name: one for name, one in evidence.items() if name not in ("changed", "unchanged", "applied_at")}
    return kept | {"sides": [side_stored(one) for one in sides_read(evidence)]}


def counted_on(
    before: Counted, agents: Sequence[AgentNews], reached: Collection[str], *, seed: str, now: float
) -> Counted:
    """Add the agents' newest heartbeats. An agent that is gone stays with its last counters."""
    engines = [one for one in agents if one.kind == "engine" and one.counted is not None and one.boot]
    changed, unchanged = dict(before.changed), dict(before.unchanged)
    for one in engines:
        if one.agent in reached and one.is_up_to_date:
            changed[one.agent] = _on(before.changed.get(one.agent), one, before.is_cold(one.agent, now))
    others = [one for one in engines if one.agent not in reached]
    for one in sorted(others, key=lambda each: (each.agent not in unchanged, _place(seed, each.agent))):
        if one.agent in unchanged or len(unchanged) < MOST_UNCHANGED:
            unchanged[one.agent] = _on(before.unchanged.get(one.agent), one, False)
    return Counted(changed, unchanged, before.applied_at, before.grace_seconds)


def _read(stored: Mapping[str, Any]) -> dict[str, Watched]:
    found = ((agent, watched_read(one)) for agent, one in stored.items())
    return {agent: one for agent, one in found if one is not None}


def _on(before: Watched | None, news: AgentNews, is_cold: bool) -> Watched:
    assert news.counted is not None
    return watched_on(before, news.boot, counts_read(news.counted), is_cold=is_cold)


def _place(seed: str, agent: str) -> bytes:
    return sha256(f"{seed}\0unchanged\0{agent}".encode()).digest()
