"""An agent as pages and the API show it at one moment. Pure: makes no queries."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.fleet.cadence import stale_after_seconds
from controlplane.fleet.enforcement import ability_of
from controlplane.fleet.health import AgentState, agent_state, gravest, is_in_sync
from controlplane.fleet.in_force import InForce, not_enforced, unenforced_words
from controlplane.fleet.models import Agent


def state_of(agent: Agent, *, now: datetime, cadence: float) -> AgentState:
    return agent_state(
        is_revoked=agent.revoked_at is not None,
        is_draining=agent.is_draining,
        last_seen_at=agent.last_seen_at,
        engine_state=agent.heartbeat.get("engine", {}).get("state"),
        now=now,
        stale_after=stale_after_seconds(cadence),
    )


def is_agent_in_sync(agent: Agent) -> bool:
    return is_in_sync(
        kind=agent.kind,
        desired_hash=agent.desired_hash,
        applied_hash=agent.applied_hash,
        engine_hash=agent.heartbeat.get("engine", {}).get("hash"),
    )


def why_of(agent: Agent, *, state: AgentState, unenforced: Sequence[Mapping[str, Any]] = ()) -> str | None:
    """Return the agent's gravest problem in a sentence, or the fact that it is revoked or has never reported."""
    if state == "enrolled":
        return "nothing was heard of it since it enrolled"
    if state == "revoked":
        return "an operator took it out of the fleet"
    return gravest(agent.conditions) or unenforced_words(unenforced)


def agent_view(
    agent: Agent, *, now: datetime, cadence: float, in_force: Mapping[int, Sequence[InForce]]
) -> dict[str, Any]:
    """Return the agent as shown. `in_force` has policy fields by group (fields_in_force)."""
    state, about, heartbeat = state_of(agent, now=now, cadence=cadence), agent.about, agent.heartbeat
    last_seen_at, load = agent.last_seen_at, heartbeat.get("load", {})
    is_serving = agent.kind == "engine" and agent.revoked_at is None
    unenforced = not_enforced(ability_of(about), in_force.get(agent.group_id, ())) if is_serving else []
    return {
        "id": agent.pk,
        "kind": agent.kind,
        "backend": about.get("backend"),
        "backend_version": about.get("backend_version") or None,
        "state": state,
        "in_sync": is_agent_in_sync(agent),
        "desired_hash": agent.desired_hash or None,
        "applied_hash": agent.applied_hash or None,
        # May lie a little in the future if another machine wrote the row.
        "last_seen_seconds": None if last_seen_at is None else round(max((now - last_seen_at).total_seconds(), 0.0), 1),
        "models": about.get("models", []),
        "kv_dtypes": about.get("kv_dtypes", []),
        "computed_as": about.get("computed_as", {}),
        "not_enforced": unenforced,
        "pool": _pool(about, heartbeat),
        "why": why_of(agent, state=state, unenforced=unenforced),
        "conditions": agent.conditions,
        "group": agent.group.slug,
        "labels": agent.labels,
        "version": about.get("version"),
        "address": about.get("address"),
        "accelerator": about.get("accelerator"),
        "desired_generation": agent.desired_generation,
        "desired_at": agent.desired_at,
        "applied_generation": agent.applied_generation,
        "applied_at": agent.applied_at,
        "last_seen_at": last_seen_at,
        "clock_skew_seconds": round(agent.clock_skew_seconds, 3),
        "draining": agent.is_draining,
        "heartbeat": agent.heartbeat_sequence,
        "running": load.get("running"),
        "waiting": load.get("waiting"),
        "spooled": heartbeat.get("spooled"),
        "enrolled_at": agent.enrolled_at,
        "enrolled_by": agent.enrolled_by,
        "revoked_at": agent.revoked_at,
    }


def _pool(about: dict[str, Any], heartbeat: dict[str, Any]) -> dict[str, Any]:
    declared, measured = about.get("pool", {}), heartbeat.get("pool", {})
    return {
        "capacity_bytes": measured.get("capacity_bytes", declared.get("capacity_bytes", 0)),
        "used_bytes": measured.get("used_bytes"),
        "block_tokens": declared.get("block_tokens", 0),
        "block_bytes": declared.get("block_bytes", {}),
    }
