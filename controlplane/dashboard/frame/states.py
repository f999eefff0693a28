"""The word and tone for each state, by kind of object; labelled numbers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Tag:
    """A word and its tone; colour is never the only signal."""

    word: str
    tone: str


@dataclass(frozen=True, slots=True)
class Stat:
    """A number with its unit and a note on its basis."""

    label: str
    value: str
    note: str


STATES: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "agent": {
        "ready": ("ready", "ok"),
        "paused": ("paused", "warn"),
        "stale": ("stale", "bad"),
        "down": ("down", "bad"),
        "failed": ("failed", "bad"),
    },
    "condition": {
        "stale": ("Silent", "warn"),
        "engine_down": ("Does not serve", "warn"),
        "rejected": ("Rejects what is published", "warn"),
        "unknown_hash": ("Holds what nobody published", "warn"),
        "engine_differs": ("Engine and sidecar differ", "warn"),
        "behind": ("Behind", "warn"),
        "unwritable": ("Waits for room on its disk", "warn"),
        "capability_lost": ("Cannot do a format any more", "warn"),
        "unproven": ("Its formats are unproven", "warn"),
        "refusing": ("Refuses commands", "warn"),
        "version_skew": ("Another version", "warn"),
        "clock_skew": ("Its clock is off", "warn"),
        "lost_reports": ("Reports were lost", "warn"),
    },
    "guard": {"kept": ("kept", "ok"), "breached": ("breached", "bad"), "too little": ("too little", "warn")},
    "isolation": {
        "isolated": ("tenants isolated", "ok"),
        "broken": ("isolation broken", "bad"),
        "unproven": ("isolation unproven", "warn"),
        "unknown": ("isolation not probed", "info"),
    },
    "join token": {"open": ("open", "ok")},
    "operation": {"done": ("done", "ok"), "failed": ("failed", "bad")},
    "organisation": {"active": ("active", "ok"), "suspended": ("suspended", "warn"), "deleted": ("deleted", "bad")},
    "pin": {
        "content_missing": ("content missing", "warn"),
        "over_budget": ("no room", "warn"),
        "expired": ("ended", "warn"),
        "disabled": ("caching is off", "warn"),
        "refused": ("refused", "bad"),
        "purged": ("purged", "warn"),
    },
    "quality": {
        "passed": ("passed", "ok"),
        "failed": ("failed", "bad"),
        "unresolved": ("left open", "warn"),
        "overridden": ("let through unmeasured", "warn"),
    },
    "rollout": {
        "paused": ("paused", "warn"),
        "done": ("done", "ok"),
        "rolled_back": ("taken back", "bad"),
        "aborted": ("aborted", "bad"),
    },
    "step": {"waiting": ("awaited", "info"), "done": ("proved", "ok"), "failed": ("failed", "bad")},
}


def tag_of(kind: str, state: str) -> Tag:
    """Return a state's tag. A state that is not listed is its own word, in a neutral tone."""
    return Tag(*STATES[kind].get(state, (state, "info")))
