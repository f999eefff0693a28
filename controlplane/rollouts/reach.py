"""The revision of a level that an agent has while a rollout brings the newest one to some agents first. Pure.

stepping.py decides which agents are reached, and when; here it is only read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine_agent.contracts.protocol import AgentKind

Key = tuple[int | None, int | None]  # of a level: the ids of its organisation and namespace


@dataclass(frozen=True, slots=True)
class RolloutView:
    """An open rollout, with the newest revision that its level has by now."""

    level: Key
    revision: int
    newest_revision: int
    base_revision: int
    reached: frozenset[str] = frozenset()
    held_revisions: Mapping[str, int] = field(default_factory=dict)  # by agent, where it is not base_revision
    is_for_everybody: bool = False  # at its last step: agents that have enrolled since are included

    @property
    def holds_back(self) -> bool:
        """Return whether agents still have to wait. A revision published after this one goes to all of them at once."""
        return not self.is_for_everybody and self.revision == self.newest_revision


Held = frozenset[tuple[Key, int]]  # the levels with an older revision than the newest, each with that revision
NOTHING: Held = frozenset()


def held_revision(rollout: RolloutView, agent_id: str, kind: AgentKind) -> int | None:
    """Return the older revision that this agent keeps for the rollout's level, or None for the newest.

    A gateway gets the newest: it has no cache that could turn cold, and requests that it must not let through to any
    engine must not reach a canary.
    """
    if kind == "gateway" or not rollout.holds_back or agent_id in rollout.reached:
        return None
    return rollout.held_revisions.get(agent_id, rollout.base_revision)


def held_by(agent_id: str, kind: AgentKind, rollouts: Iterable[RolloutView]) -> Held:
    """Return all older revisions that an agent keeps. Agents for which they are equal have the same desired state."""
    revisions = ((rollout.level, held_revision(rollout, agent_id, kind)) for rollout in rollouts)
    return frozenset((level, revision) for level, revision in revisions if revision is not None)


def superseded_by_next(rollout: RolloutView) -> tuple[int, dict[str, int]]:
    """Return `base_revision` and `held_revisions` for the superseding rollout: all agents keep their revisions.

    Call it before the next revision is published, while `newest_revision` is still the newest.
    """
    if not rollout.holds_back:
        return rollout.newest_revision, {}
    held_revisions = {
        agent: revision for agent, revision in rollout.held_revisions.items() if agent not in rollout.reached
    }
    held_revisions |= dict.fromkeys(sorted(rollout.reached), rollout.revision)
    base = rollout.base_revision
    return base, {agent: revision for agent, revision in held_revisions.items() if revision != base}
