"""The rows of the list of rollouts. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.dashboard.frame.states import Tag
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.rollouts.words import name_of, place_in_steps, state_tag


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One rollout. `view` is from rollouts.views.rollout_view. Of `total` agents, `done` have acknowledged."""

    view: Mapping[str, Any]
    done: int
    total: int
    now: datetime

    @property
    def title(self) -> str:
        return f"{self.view['place']}, revision {self.view['revision']}"

    @property
    def name(self) -> str:
        return name_of(self.view)

    @property
    def way(self) -> str:
        return "all at once" if self.view["strategy"] == "all" else place_in_steps(self.view)

    @property
    def state(self) -> Tag:
        return state_tag(self.view, self.now)

    @property
    def summary(self) -> str:
        return f"{self.title} is on {self.progress}"

    @property
    def percent(self) -> int:
        return 100 * self.done // self.total if self.total else 0

    @property
    def progress(self) -> str:
        return f"{self.done} of {counted(self.total, 'agent')}"


def list_headline(running: int, paused: int) -> str:
    if not running and not paused:
        return "No rollout is under way"
    if not running or not paused:
        total = running or paused
        return f"{counted(total, 'rollout')} {'is' if total == 1 else 'are'} {'running' if running else 'paused'}"
    return f"{running + paused} rollouts are under way: {running} running, {paused} paused"


def list_advice(total: int, find: str) -> str:
    if find:
        return f"{counted(total, 'rollout')} of places whose name has “{find}” in it."
    if not total:
        return "Every revision that is published comes to the agents by a rollout, and stands here from then on."
    return f"{counted(total, 'rollout')} in all, those under way first, then the newest. Kept for 90 days."
