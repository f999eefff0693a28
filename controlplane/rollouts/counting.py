"""What is kept of a bake between two looks at it: every watched agent's counters, on both sides. Pure."""

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

MOST_UNCHANGED = 100  # to compare with; more would make nothing surer, and every one is kept


@dataclass(frozen=True, slots=True)
class AgentNews:
    """What an agent's newest heartbeat says about one level, and what is wrong with it; empty where nothing is."""

    agent: str
    kind: str
    boot: str
    counted: Mapping[str, Any] | None  # as wire.py has it; None where it did not count that level yet
    is_up_to_date: bool  # its heartbeat is from after its last acknowledgement
    rejected: str = ""
    silent: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """Both sides of a bake. `applied_at`: since when each changed agent holds the new policy, in unix seconds."""

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
        """Those that are reached, and those that are not."""
        return side_of(self.changed.values()), side_of(self.unchanged.values())

    def is_cold(self, agent: str, now: float) -> bool:
        """Whether misses of another format are still the change's own doing there."""
        since = self.applied_at.get(agent)
        return since is not None and now < since + self.grace_seconds


def sides_read(evidence: Mapping[str, Any]) -> tuple[Side, Side]:
    """Of one that is under way or that has ended: those that are reached, and those that are not."""
    if "sides" in evidence:
        changed, unchanged = evidence["sides"]
        return side_read(changed), side_read(unchanged)
    return Counted.read(evidence).sides()


def closed(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one that has ended: what all came to, without every agent's counters."""
    kept = {name: one for name, one in evidence.items() if name not in ("changed", "unchanged", "applied_at")}
    return kept | {"sides": [side_stored(one) for one in sides_read(evidence)]}


def counted_on(
    before: Counted, agents: Sequence[AgentNews], reached: Collection[str], *, seed: str, now: float
) -> Counted:
    """With the newest heartbeats. An agent that is gone stays with what it counted until then."""
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
