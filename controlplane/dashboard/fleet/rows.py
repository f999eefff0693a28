"""Rows of the Fleet page: whether each agent is in sync, its problems, and what it serves. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.analytics.agents import Hits
from controlplane.dashboard.frame.charts import Bar
from controlplane.dashboard.frame.states import Tag, tag_of
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.enforcement_words import labels_words, unenforced
from controlplane.dashboard.rollouts.rows import RolloutRow
from controlplane.fleet.canaries import NEVER, Isolation

NO_HITS = Hits()
MOST_TROUBLES = 5


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent. `view` is from fleet.views.agent_view; `hits` covers an hour, `pool` is by namespace and format."""

    view: Mapping[str, Any]
    isolation: Isolation = NEVER
    hits: Hits = NO_HITS
    pool: Bar | None = None

    @property
    def is_engine(self) -> bool:
        return bool(self.view["kind"] == "engine")

    @property
    def isolation_tag(self) -> Tag | None:
        return tag_of("isolation", self.isolation.state) if self.is_engine else None

    @property
    def sync(self) -> Tag:
        return sync_tag(self.view)

    @property
    def is_well(self) -> bool:
        is_apart = not self.is_engine or self.isolation.state != "broken"
        is_up = tag_of("agent", self.view["state"]).tone != "bad"
        return is_up and self.sync.tone == "ok" and not self.why and is_apart

    @property
    def why(self) -> str:
        return "; ".join(filter(None, (_why_broken(self.isolation) if self.is_engine else "", self.view["why"])))

    @property
    def pool_percent(self) -> int | None:
        return percent_used(self.view["pool"])

    @property
    def queue(self) -> int | None:
        running, waiting = self.view["running"], self.view["waiting"]
        return None if running is None else running + (waiting or 0)

    @property
    def since(self) -> Any:
        """Return since when the agent is in sync, or since when it is not."""
        if self.view["in_sync"]:
            return self.view["applied_at"]
        behind = self.view["conditions"].get("behind") or self.view["conditions"].get("engine_differs")
        return behind["since"] if behind else self.view["desired_at"]


def sync_tag(agent: Mapping[str, Any]) -> Tag:
    """Return the tag; in sync means that the agent also enforces what it applies."""
    if not agent["in_sync"]:
        return Tag("catching up", "warn")
    if names := unenforced(agent):
        return Tag(f"in sync, not enforced: {labels_words(names)}", "warn")
    return Tag("in sync", "ok")


def worst_first(rows: Sequence[AgentRow]) -> list[AgentRow]:
    return sorted(rows, key=lambda row: (row.is_well, row.view["id"]))


def headline(rows: Sequence[AgentRow], rollouts: Sequence[RolloutRow] = ()) -> str:
    """Return the state of all agents, and how far a rollout is: an agent that waits for its step is in sync, too."""
    if not rows:
        return "No agent has joined yet"
    in_sync = sum(row.view["in_sync"] for row in rows)
    if in_sync < len(rows):
        synced = f"{in_sync} of {counted(len(rows), 'agent')} {'is' if in_sync == 1 else 'are'} in sync"
    else:
        synced = f"All {len(rows)} agents are in sync" if rows[1:] else "The only agent is in sync"
    if not rollouts:
        return synced
    return f"{synced}; {rollouts[0].summary if len(rollouts) == 1 else f'{len(rollouts)} rollouts are in progress'}"


def advice(rows: Sequence[AgentRow], rollouts: Sequence[RolloutRow]) -> str:
    if not rows:
        return "An agent is a machine with a model; it joins with a token that you make below."
    kinds = [row.view["kind"] for row in rows]
    parts = [counted(kinds.count("engine"), "engine"), counted(kinds.count("gateway"), "gateway")]
    return " · ".join(
        [*parts, f"{counted(len(rollouts), 'rollout')} under way" if rollouts else "no rollout under way"]
    )


def troubles(rows: Sequence[AgentRow]) -> list[AgentRow]:
    """Return the first few agents with problems; the table shows all."""
    return [row for row in rows if row.why][:MOST_TROUBLES]


def _why_broken(isolation: Isolation) -> str:
    if isolation.state != "broken":
        return ""
    if leaked := isolation.rounds["leaked"]:
        return (
            f"isolation is broken: {counted(leaked, 'probe')} in the last hour found cached what nobody had sent there"
        )
    return "isolation is broken: time tells what another tenant has cached"


def percent_used(pool: Mapping[str, Any]) -> int | None:
    used, capacity = pool["used_bytes"], pool["capacity_bytes"]
    return round(100 * used / capacity) if used is not None and capacity else None
