"""Bodies for rollouts: how published revisions reach the agents, and the guards that advance or abort them."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from controlplane.api.schemas.base import EVERY_MEMBER, Given, example
from controlplane.api.schemas.tenants import ID, WHEN
from controlplane.rollouts.spec import Guards, Step

RolloutState = Annotated[
    Literal["running", "paused", "done", "rolled_back", "aborted", "superseded"],
    Field(
        description="`paused`: whoever is reached stays so, nobody else is; guards watch on. `rolled_back`: a guard "
        "sent it back. `aborted`: somebody did. `superseded`: a newer revision came."
    ),
]
FINDING = {
    "guard": "hit_ratio_drop",
    "changed": 0.61,
    "unchanged": 0.72,
    "bound": 0.05,
    "verdict": "breached",
    "words": "hit ratio 61.0% against 72.0% elsewhere; 5.0% less is the most",
}
SIDE = {"agents": 1, "requests": 412, "errors": 0, "hit_ratio": 0.61, "ttft_p95_seconds": 0.21}
ROLLOUT = {
    "id": ID,
    "place": "acme/chat",
    "revision": 7,
    "base_revision": 6,
    "strategy": "canary",
    "steps": [10, 50, 100],
    "step": 0,
    "state": "running",
    "why": "Step 1 of 3 bakes for 60 s.",
    "bake_seconds": 60,
    "guards": Guards().model_dump(),
    "step_began_at": WHEN,
    "baking_since": WHEN,
    "findings": [FINDING],
    "operation": ID,
    "created_by": "kim@acme.example",
    "created_at": WHEN,
    "finished_at": None,
}
AGENT = {"agent": "agent-1", "kind": "engine", "reached": True, "acknowledged": True, "why": None}
DETAIL = ROLLOUT | {
    "agents": [AGENT],
    "changed": SIDE,
    "unchanged": {**SIDE, "agents": 9},
    "bakes": [],
}


class GuardsShown(Guards):
    """Every guard; null: not compared."""

    model_config = EVERY_MEMBER


class FindingShown(Given):
    """One guard: the figure of the agents that are reached, that of the others, and what follows."""

    model_config = ConfigDict(json_schema_extra=example(**FINDING))

    guard: Literal["error_ratio", "hit_ratio_drop", "ttft_p95_rise"]
    changed: float | None
    unchanged: float | None
    bound: float
    verdict: Literal["kept", "breached", "too little"]
    words: str


class SideShown(Given):
    """What agents on one side have counted since the bake began; misses that the change itself causes are left out."""

    model_config = ConfigDict(json_schema_extra=example(**SIDE))

    agents: int
    requests: int
    errors: int
    hit_ratio: float | None
    ttft_p95_seconds: float | None


class BakeShown(Given):
    """A step that was gone on from, and by which numbers."""

    model_config = ConfigDict(json_schema_extra=example(step=0, at=WHEN, findings=[{**FINDING, "verdict": "kept"}]))

    step: int
    at: datetime
    findings: list[FindingShown]


class RolloutAgentShown(Given):
    """How far one agent is. `why`: what is wrong with it, for operators."""

    model_config = ConfigDict(json_schema_extra=example(**AGENT))

    agent: str
    kind: Literal["engine", "gateway"]
    reached: bool
    acknowledged: bool
    why: str | None


class RolloutShown(Given):
    """One revision of one level on its way to the agents."""

    model_config = ConfigDict(json_schema_extra=example(**ROLLOUT))

    id: UUID
    place: str = Field(description="Whose policy it is: `fleet`, an organisation, or organisation/namespace.")
    revision: int
    base_revision: int = Field(description="What a way back leads to.")
    strategy: Literal["all", "canary"]
    steps: list[Step] = Field(description="Shares of the engines in percent, or labels; the last is 100.")
    step: int = Field(description="Which of them it is at, from 0.")
    state: RolloutState
    why: str
    bake_seconds: int
    guards: GuardsShown | None = Field(
        description="Null where it goes to all at once: there is nobody to compare with."
    )
    step_began_at: datetime
    baking_since: datetime | None
    findings: list[FindingShown] = Field(description="By the newest numbers of this step.")
    operation: UUID | None = Field(description="What waits for every agent to acknowledge it.")
    created_by: str
    created_at: datetime
    finished_at: datetime | None


class RolloutDetail(RolloutShown):
    model_config = ConfigDict(json_schema_extra=example(**DETAIL))

    agents: list[RolloutAgentShown]
    changed: SideShown
    unchanged: SideShown
    bakes: list[BakeShown]
