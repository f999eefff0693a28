"""Snapshot entries for gateways only: engines to route to, formats to refuse, and shares during a rollout. Pure."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine_agent.contracts.protocol import FLEET, Entry

Refused = Mapping[str, Mapping[str, str]]  # model: {format: reason}

ACTIVE = "active"  # takes requests
DRAINING = "draining"  # only finishes its requests
DOORS = "doors/all"
GONE_SECONDS = 60.0  # a gateway that does not report for so long is taken to admit no requests


def gateways_living(last_seen_at: Mapping[str, datetime | None], *, now: datetime) -> list[str]:
    """Return the gateways that share the limits: those heard recently.

    If none was, as after the control plane was away, return all: to admit too little for a moment harms less than too
    much.
    """
    known = {agent: at for agent, at in last_seen_at.items() if at is not None}
    living = [agent for agent, at in known.items() if (now - at).total_seconds() <= GONE_SECONDS]
    return sorted(living or known)


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine that its group's gateways may route to.

    Its models list the formats that it supports and that may carry traffic.
    """

    agent_id: str
    address: str
    backend: str
    models: Sequence[Mapping[str, Any]]
    identity: bytes = field(repr=False)
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class TrialView:
    """A rollout that has reached some engines. They get `share` of the requests of `namespaces`, or of all for None."""

    rollout_id: str
    organisation_id: str | None
    namespaces: Sequence[str] | None
    reached: frozenset[str]
    share: float | None  # None: in proportion to the number of engines


def gateway_entries(
    engines: Sequence[EngineView], refused: Refused, trials: Iterable[TrialView], gateways: Sequence[str] = ()
) -> dict[str, Entry]:
    """Return all entries by key. `gateways` are the live ones; a single one needs no entry."""
    splits = (_split(trial, engines) for trial in trials)
    return {
        **{f"route/{engine.agent_id}": _route(engine) for engine in engines if engine.address},
        **{f"gate/{_model_id(model)}": _gate(model, formats) for model, formats in refused.items() if formats},
        **{key: entry for key, entry in splits if entry["agents"]},
        **({DOORS: {"org": FLEET, "gateways": sorted(gateways)}} if len(gateways) > 1 else {}),
    }


def _route(engine: EngineView) -> Entry:
    return {
        "org": FLEET,
        "agent": engine.agent_id,
        "address": engine.address,
        "models": {model["name"]: _able(model, engine.backend) for model in engine.models},
        "identity": base64.b64encode(engine.identity).decode(),
        "state": DRAINING if engine.is_draining else ACTIVE,
    }


def _able(model: Mapping[str, Any], backend: str) -> dict[str, Any]:
    fields = {name: model[name] for name in ("revision", "kv_dtypes", "context_tokens")}
    return {**fields, "backend": backend}


def _gate(model: str, formats: Mapping[str, str]) -> Entry:
    return {"org": FLEET, "model": model, "refused": dict(formats)}


def _model_id(model: str) -> str:
    """Return a hash, because a model's name may contain what an entry's key may not."""
    return hashlib.sha256(model.encode()).hexdigest()[:32]


def _split(trial: TrialView, engines: Sequence[EngineView]) -> tuple[str, Entry]:
    """Return the traffic split, without agents once all engines of this group are reached.

    Agents of other groups do not count.
    """
    routable = {engine.agent_id for engine in engines if engine.address}
    canaries = sorted(routable & trial.reached)
    is_over = len(canaries) == len(routable)
    entry: Entry = {
        "org": trial.organisation_id or FLEET,
        "namespaces": None if trial.namespaces is None else sorted(trial.namespaces),
        "agents": [] if is_over else canaries,
        "share": len(canaries) / max(1, len(routable)) if trial.share is None else trial.share,
    }
    return f"split/{trial.rollout_id}", entry
