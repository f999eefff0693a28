"""The health of an agent: its state, and its conditions with their start times and reasons. Pure.

The state is one word, derived from the last heartbeat and its age. Conditions are the problems of an agent. Several may
exist at once, and each keeps its start time for as long as it lasts.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, get_args

AgentState = Literal["enrolled", "ready", "starting", "down", "failed", "draining", "stale", "revoked"]
Kind = Literal[
    "stale",
    "engine_down",
    "rejected",
    "unknown_hash",
    "engine_differs",
    "behind",
    "unwritable",
    "capability_lost",
    "unproven",
    "refusing",
    "version_skew",
    "clock_skew",
    "lost_reports",
]
Conditions = Mapping[str, Mapping[str, str]]  # by kind: {"since": a time as text, "why": a sentence}

AGENT_STATES: tuple[AgentState, ...] = get_args(AgentState)
KINDS: tuple[Kind, ...] = get_args(Kind)  # gravest first: where there is room for only one, the first is shown
UP = ("ready", "draining")  # states of an engine that answers requests
BEHIND = timedelta(seconds=3)
SKEW_SECONDS = 5.0
AHEAD = timedelta(seconds=60)  # more than two web processes' clocks differ: our clock was set back
REFUSED_WITHIN = timedelta(minutes=10)
WHY_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Refused:
    """Commands that an agent refused for the same reason."""

    reason: str
    count: int
    last_at: datetime
    what: str = ""


@dataclass(frozen=True, slots=True)
class Needed:
    """A KV format that a policy in force uses, for one model or, with None, in general."""

    kv_dtype: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """The facts that conditions depend on. A hash is empty before the first state."""

    kind: str
    is_revoked: bool
    is_draining: bool
    last_seen_at: datetime | None
    desired_hash: str
    behind_since: datetime | None  # since when a newer state than the acknowledged one is desired
    applied_hash: str
    rejected_hash: str
    rejected_reason: str
    rejected_at: datetime | None
    is_held_known: bool  # whether the state it reports was ever desired for it
    engine: Mapping[str, Any]  # from its last heartbeat, checked by wire.heartbeat_check; empty before the first
    held_hash: str | None  # the state that its sidecar applied, from the same heartbeat
    clock_skew_seconds: float
    version: str
    formats: Collection[str]  # that it declares now
    formats_once: Collection[str]  # that it has ever declared
    model_formats: Mapping[str, Collection[str]]
    needed: Collection[Needed]  # by policies in its group
    why_idle: str  # why the quality gate allows it no requests at all; empty if it may have some
    refused: Collection[Refused]
    lost_reports: int


def agent_state(
    *,
    is_revoked: bool,
    is_draining: bool,
    last_seen_at: datetime | None,
    engine_state: str | None,
    now: datetime,
    stale_after: float,
) -> AgentState:
    if is_revoked:
        return "revoked"
    if last_seen_at is None:
        return "enrolled"
    if _is_silent(last_seen_at, now, stale_after):
        return "stale"
    if engine_state == "down":
        return "down"
    if engine_state == "failed":
        return "failed"
    if engine_state not in UP:
        return "starting"
    return "draining" if is_draining or engine_state == "draining" else "ready"


def is_in_sync(*, kind: str, desired_hash: str, applied_hash: str, engine_hash: str | None) -> bool:
    """Return whether the agent has applied its desired state, by its acknowledgement and, if an engine, the engine's
    report."""
    is_applied = desired_hash != "" and applied_hash == desired_hash
    return is_applied and (kind != "engine" or engine_hash == applied_hash)


def conditions(facts: AgentFacts, *, before: Conditions, now: datetime, stale_after: float, ours: str) -> Conditions:
    """Return all current problems of an agent; none if it is revoked or has never reported.

    A condition that is also in `before` keeps its start time. `ours` is the version of the control plane.
    """
    if facts.is_revoked or facts.last_seen_at is None:
        return {}
    findings = {
        kind: finding for kind in KINDS if (finding := _FINDERS[kind](facts, now, stale_after, ours)) is not None
    }
    return {
        kind: {"since": before[kind]["since"] if kind in before else _text(since), "why": why[:WHY_LENGTH]}
        for kind, (since, why) in findings.items()
    }


def gravest(agent_conditions: Conditions) -> str | None:
    """Return the reason of the gravest condition, to show beside the state."""
    return next((agent_conditions[kind]["why"] for kind in KINDS if kind in agent_conditions), None)


Found = tuple[datetime, str] | None


def _stale(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    if facts.last_seen_at is None or not _is_silent(facts.last_seen_at, now, stale_after):
        return None
    if facts.last_seen_at > now:
        return now, "nothing heard of it since the control plane's clock was set back"
    # Name the time, not the duration: a text that changes by itself would count as a change on every update.
    return facts.last_seen_at, f"nothing heard of it since {_text(facts.last_seen_at)}"


def _engine_down(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    if facts.engine.get("state") not in ("down", "failed"):
        return None
    why = facts.engine.get("why") or "its sidecar does not say why"
    return now, f"the {facts.kind} is {facts.engine['state']}: {why}"


def _rejected(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    is_about_this = facts.rejected_hash != "" and facts.rejected_hash == facts.desired_hash != facts.applied_hash
    if not is_about_this:
        return None
    return facts.rejected_at or now, f"it cannot hold what it is to hold: {facts.rejected_reason}"


def _unknown_hash(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    if facts.is_held_known:
        return None
    return now, f"it holds {_short(facts.held_hash or facts.applied_hash)}, which it was never to hold"


def _engine_differs(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    if facts.kind != "engine" or facts.held_hash is None or facts.engine.get("state") not in UP:
        return None
    engine = facts.engine.get("hash")
    if engine == facts.held_hash:
        return None
    return now, f"its engine holds {_short(engine)}, its sidecar brought it {_short(facts.held_hash)}"


def _behind(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    if facts.applied_hash == facts.desired_hash or facts.behind_since is None or now - facts.behind_since <= BEHIND:
        return None
    return facts.behind_since, f"it holds {_short(facts.applied_hash)} and is to hold {_short(facts.desired_hash)}"


def _unwritable(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    """Return a condition if a serving engine gives a reason: it does so only while it waits to write to its disk."""
    if facts.engine.get("state") not in UP or not facts.engine.get("why"):
        return None
    return now, f"it waits for room on its disk: {facts.engine['why']}"


def _capability_lost(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    """Return a condition if a policy needs formats that this engine once supported and no longer does.

    An engine that never supported a format has none: others of its mixed group serve it.
    """
    if facts.kind != "engine":
        return None
    lost = sorted({needed.kv_dtype for needed in facts.needed if _is_lost(facts, needed)})
    return (now, f"a policy needs {', '.join(lost)}, which it cannot do any more") if lost else None


def _is_lost(facts: AgentFacts, needed: Needed) -> bool:
    if needed.kv_dtype not in facts.formats_once:
        return False
    if needed.model is None:
        return needed.kv_dtype not in facts.formats
    return needed.model in facts.model_formats and needed.kv_dtype not in facts.model_formats[needed.model]


def _unproven(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    return (now, facts.why_idle) if facts.why_idle else None


def _refusing(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    recent = sorted(
        (refusal for refusal in facts.refused if now - refusal.last_at < REFUSED_WITHIN),
        key=lambda refusal: refusal.last_at,
    )
    if not recent:
        return None
    reasons = ", ".join(
        f"{refusal.count} {refusal.reason}" for refusal in sorted(recent, key=lambda refusal: refusal.reason)
    )
    last_refusal = f"; the last: {recent[-1].what}" if recent[-1].what else ""
    return recent[0].last_at, f"it refused commands: {reasons}{last_refusal}"


def _version_skew(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    if _minor(facts.version) == _minor(control_plane_version):
        return None
    return now, f"it is version {facts.version or 'unknown'}, the control plane {control_plane_version}"


def _clock_skew(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    skew = facts.clock_skew_seconds
    if abs(skew) <= SKEW_SECONDS:
        return None
    return now, f"its clock is {_rounded(abs(skew))} {'ahead' if skew > 0 else 'behind'}"


def _lost_reports(facts: AgentFacts, now: datetime, stale_after: float, control_plane_version: str) -> Found:
    if not facts.lost_reports:
        return None
    plural = "report" if facts.lost_reports == 1 else "reports"
    return now, f"{facts.lost_reports} {plural} never came: its spool was cut short"


_FINDERS: Mapping[Kind, Callable[[AgentFacts, datetime, float, str], Found]] = {
    "stale": _stale,
    "engine_down": _engine_down,
    "rejected": _rejected,
    "unknown_hash": _unknown_hash,
    "engine_differs": _engine_differs,
    "behind": _behind,
    "unwritable": _unwritable,
    "capability_lost": _capability_lost,
    "unproven": _unproven,
    "refusing": _refusing,
    "version_skew": _version_skew,
    "clock_skew": _clock_skew,
    "lost_reports": _lost_reports,
}


def _is_silent(last_seen_at: datetime, now: datetime, stale_after: float) -> bool:
    """Return whether the last heartbeat is too old. One with a time in the future proves nothing about now."""
    return (now - last_seen_at).total_seconds() > stale_after or last_seen_at > now + AHEAD


@lru_cache(maxsize=100)
def _minor(version: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", version)[:2])


def _short(hash_: str | None) -> str:
    return f"{hash_[:12]}…" if hash_ else "nothing"


def _rounded(seconds: float) -> str:
    """Format a duration coarsely, so that it stays the same from one heartbeat to the next."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
