"""The list of rollouts, a row each. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.dashboard.fleet.rows import Tag
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.fields import reason_words
from controlplane.dashboard.rollouts.words import place_in_steps, place_words, state_tag


@dataclass(frozen=True, slots=True)
class RolloutLine:
    id: UUID
    place: str
    revision: int
    way: str
    state: Tag
    why: str
    percent: int
    progress: str
    by: str
    began_at: datetime
    ended_at: datetime | None


def rollout_line(seen: Mapping[str, Any], counts: Mapping[str, int], *, now: datetime) -> RolloutLine:
    """`counts`: of its agents, how many there are (`all`) and how many have acknowledged (`done`)."""
    done, total = counts["done"], counts["all"]
    return RolloutLine(
        id=seen["id"],
        place=place_words(seen["place"]),
        revision=seen["revision"],
        way="all at once" if seen["strategy"] == "all" else place_in_steps(seen),
        state=state_tag(seen, now),
        why=reason_words(seen["why"]),
        percent=100 * done // total if total else 0,
        progress=f"{done} of {counted(total, 'agent')}" if total else "not kept",
        by=seen["created_by"],
        began_at=seen["created_at"],
        ended_at=seen["finished_at"],
    )


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
