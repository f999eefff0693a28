"""What only gateways hold: engines to send to, formats nobody may ask for, shares while a policy is tried. Pure."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine_agent.contracts.protocol import FLEET, Entry

Refused = Mapping[str, Mapping[str, str]]  # by model: formats, each with why

ACTIVE = "active"  # takes requests
DRAINING = "draining"  # ends what it has
DOORS = "doors/all"
GONE_SECONDS = 60.0  # a gateway that says nothing for so long lets nobody in


def gateways_living(heard: Mapping[str, datetime | None], *, now: datetime) -> list[str]:
    """Of those and when each was last heard, the ones that share what there is. While nobody is heard, as after the
    control plane was away, all of them: who lets in too little for a moment harms less than who lets in too much.
    """
    known = {agent: at for agent, at in heard.items() if at is not None}
    living = [agent for agent, at in known.items() if (now - at).total_seconds() <= GONE_SECONDS]
    return sorted(living or known)


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine that gateways of its group may send to. Of its models: the formats that it can do and that may be."""

    agent_id: str
    address: str
    backend: str
    models: Sequence[Mapping[str, Any]]
    identity: bytes = field(repr=False)
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class TrialView:
    """A rollout that has come to some engines. `share` of its namespaces' requests, or of all for None, is for them."""

    rollout_id: str
    organisation_id: str | None
    namespaces: Sequence[str] | None
    reached: frozenset[str]
    share: float | None  # None: as many as they are among the engines


def gateway_entries(
    engines: Sequence[EngineView], refused: Refused, trials: Iterable[TrialView], gateways: Sequence[str] = ()
) -> dict[str, Entry]:
    """All of them, by key. `gateways`: those that live; where there is one, it need not be told."""
    splits = (_split(trial, engines) for trial in trials)
    return {
        **{f"route/{one.agent_id}": _route(one) for one in engines if one.address},
        **{f"gate/{_model_id(model)}": _gate(model, formats) for model, formats in refused.items() if formats},
        **{key: entry for key, entry in splits if entry["agents"]},
        **({DOORS: {"org": FLEET, "gateways": sorted(gateways)}} if len(gateways) > 1 else {}),
    }


def _route(engine: EngineView) -> Entry:
    return {
        "org": FLEET,
        "agent": engine.agent_id,
        "address": engine.address,
        "models": {one["name"]: _able(one, engine.backend) for one in engine.models},
        "identity": base64.b64encode(engine.identity).decode(),
        "state": DRAINING if engine.is_draining else ACTIVE,
    }


def _able(model: Mapping[str, Any], backend: str) -> dict[str, Any]:
    told = {name: model[name] for name in ("revision", "kv_dtypes", "context_tokens")}
    return {**told, "backend": backend}


def _gate(model: str, formats: Mapping[str, str]) -> Entry:
    return {"org": FLEET, "model": model, "refused": dict(formats)}


def _model_id(model: str) -> str:
    """A model's name may hold what an entry's key may not."""
    return hashlib.sha256(model.encode()).hexdigest()[:32]


def _split(trial: TrialView, engines: Sequence[EngineView]) -> tuple[str, Entry]:
    """As long as some have it and some do not. An agent that another group has is no part of it."""
    there = {one.agent_id for one in engines if one.address}
    canaries = sorted(there & trial.reached)
    is_over = len(canaries) == len(there)
    entry: Entry = {
        "org": trial.organisation_id or FLEET,
        "namespaces": None if trial.namespaces is None else sorted(trial.namespaces),
        "agents": [] if is_over else canaries,
        "share": len(canaries) / max(1, len(there)) if trial.share is None else trial.share,
    }
    return f"split/{trial.rollout_id}", entry
