"""Rollouts in tests: engines that say what they count, without processes around them; and the shipped results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from controlplane.fleet.intake import Ended
from controlplane.fleet.models import Agent, OperationStep
from controlplane.fleet.operations import steps_end
from controlplane.fleet.quality_results import artefact_read, quality_record
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.services import policy_publish
from controlplane.rollouts.spec import Guards, RolloutSpec
from controlplane.rollouts.watching import scope_of
from engine_agent.contracts.wire import TTFT_SECONDS
from tenants.actor import SYSTEM, Actor
from tenants.levels import Place
from tenants.policy import Policy
from tests.database.factories import make_agent

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "engine_agent" / "demo" / "model" / "quality-torch-cpu.json"


def shipped_quality() -> dict[str, Any]:
    """What was measured of the demo model, as it lies beside it."""
    told: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return told


def make_canary(
    place: Place, *agents: str, steps: tuple[int, ...] = (50, 100), actor: Actor = SYSTEM, **guards: Any
) -> Rollout:
    """A canary under way, of a TTL, on engines of which each is made if it is not there."""
    for name in agents:
        if not Agent.objects.filter(pk=name).exists():
            make_agent(name)
    spec = RolloutSpec(strategy="canary", steps=list(steps), guards=Guards(**guards))
    made = policy_publish(actor=actor, place=place, policy=Policy(ttl_seconds=77), expected=None, rollout=spec)
    assert made.rollout is not None
    return made.rollout


def acknowledge(*agents: str) -> None:
    """These agents hold what they are to hold, and every step that waits for that ends."""
    Agent.objects.filter(pk__in=agents).update(applied_hash=F("desired_hash"), last_seen_at=timezone.now())
    steps = OperationStep.objects.filter(agent__in=agents, state=OperationStep.State.WAITING, deed="state")
    with transaction.atomic():
        steps_end([Ended(pk, True) for pk in steps.values_list("pk", flat=True)], now=timezone.now())


def counters(
    requests: int = 0,
    *,
    errors: int = 0,
    tokens: int = 100,
    cached: int = 0,
    missed: Mapping[str, int] | None = None,
    seconds: float = 0.02,
) -> dict[str, Any]:
    """Of so many requests of so many tokens each, answered after so many seconds, as a heartbeat has them."""
    slower = [0 if bound < seconds else requests for bound in TTFT_SECONDS]
    return {
        "requests": requests,
        "errors": errors,
        "prompt_tokens": requests * tokens,
        "cached_tokens": requests * cached,
        "missed": dict(missed or {}),
        "ttft_buckets": [*slower, requests],
    }


def beat(agent: str, rollout: Rollout, counted: Mapping[str, Any] | None = None, *, boot: str = "boot-1") -> None:
    """Its newest heartbeat: up, holding what it acknowledged, and counting that for the rollout's level."""
    scope = scope_of(rollout.level)
    held = Agent.objects.values_list("applied_hash", flat=True).get(pk=agent)
    heartbeat = {
        "applied": {"hash": held, "generation": 1},
        "engine": {"boot": boot, "state": "ready", "why": None, "hash": held},
        "counters": {} if counted is None else {scope: dict(counted)},
    }
    Agent.objects.filter(pk=agent).update(heartbeat=heartbeat, last_seen_at=timezone.now())


def make_shipped_results(model: str = "luminet-demo") -> None:
    quality_record(actor=SYSTEM, model=model, artefact=artefact_read(shipped_quality()))
