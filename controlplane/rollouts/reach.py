"""Which revision of a level an agent is to hold while a rollout brings the newest one to some first. Pure.

Who is reached, and when, is the rollouts' decision; here it is only read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine_agent.contracts.protocol import AgentKind

Key = tuple[int | None, int | None]  # of a level: its organisation's and its namespace's number


@dataclass(frozen=True, slots=True)
class RolloutView:
    """An open rollout, with the newest revision that its level has by now."""

    level: Key
    revision: int
    newest_revision: int
    base_revision: int
    reached: frozenset[str] = frozenset()
    held_revisions: Mapping[str, int] = field(default_factory=dict)  # by agent, where it is not base_revision
    is_for_everybody: bool = False  # at its last step: also for who has enrolled since

    @property
    def holds_back(self) -> bool:
        """A revision published past it goes to everybody at once: then there is nothing to hold back for."""
        return not self.is_for_everybody and self.revision == self.newest_revision


Held = frozenset[tuple[Key, int]]  # levels of which not the newest revision is held, each with the one that is
NOTHING: Held = frozenset()


def held_revision(rollout: RolloutView, agent_id: str, kind: AgentKind) -> int | None:
    """The older revision that this agent is to hold of the rollout's level; None: the newest.

    A gateway goes with the newest: it keeps no cache that could turn cold, and what it refuses to let through to any
    engine must not get through to a canary.
    """
    if kind == "gateway" or not rollout.holds_back or agent_id in rollout.reached:
        return None
    return rollout.held_revisions.get(agent_id, rollout.base_revision)


def held_by(agent_id: str, kind: AgentKind, rollouts: Iterable[RolloutView]) -> Held:
    """All that an agent is to hold in older revisions: agents with the same of these hold the same."""
    found = ((one.level, held_revision(one, agent_id, kind)) for one in rollouts)
    return frozenset((level, revision) for level, revision in found if revision is not None)


def superseded_by_next(rollout: RolloutView) -> tuple[int, dict[str, int]]:
    """`base_revision` and `held_revisions` of the rollout that supersedes this one: everybody keeps what they hold.

    Asked before the next revision is published: `newest_revision` is the one until then.
    """
    if not rollout.holds_back:
        return rollout.newest_revision, {}
    held = {agent: revision for agent, revision in rollout.held_revisions.items() if agent not in rollout.reached}
    held |= dict.fromkeys(sorted(rollout.reached), rollout.revision)
    base = rollout.base_revision
    return base, {agent: revision for agent, revision in held.items() if revision != base}
