"""Bodies for agents and join tokens."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, StringConstraints

from controlplane.api.schemas.base import Given, NoneIfEmpty, OneTimeSecret, SlugOf, Taken, example
from controlplane.api.schemas.tenants import ID, WHEN, GroupSlug, Name
from controlplane.fleet.labels import Labels
from engine_agent.contracts.enforcement import Grade
from tenants.models.organisations import SLUG_PATTERN
from tenants.policy import KvDtype

AgentKind = Annotated[
    Literal["engine", "gateway"], Field(description="`engine` computes, `gateway` is the door in front.")
]
AgentState = Annotated[
    Literal["enrolled", "ready", "starting", "down", "failed", "draining", "stale", "revoked"],
    Field(
        description="`enrolled`: never heard of. `down`, `failed`: its sidecar answers, what it serves does not. "
        "`stale`: nothing heard for a while. `revoked`: taken out of the fleet."
    ),
]
AgentName = Annotated[str, StringConstraints(pattern=SLUG_PATTERN), Field(description="An agent's id.")]
HASH = "5f0c2e0b1a7d4c6f9e8b3a2d1c0f4e5b6a79880c1d2e3f405162738495a6b7c8"


class ConditionShown(Given):
    """Something that is not as it should be."""

    model_config = ConfigDict(json_schema_extra=example(since=WHEN, why="its clock is 10 min ahead"))

    since: datetime
    why: str


class AgentModel(Given):
    """A model that it serves."""

    model_config = ConfigDict(
        json_schema_extra=example(
            name="luminet-demo", revision="3f9a1c", kv_dtypes=["bf16", "fp8"], context_tokens=2048
        )
    )

    name: str
    revision: str
    kv_dtypes: list[KvDtype]
    context_tokens: int


class AgentAccelerator(Given):
    model_config = ConfigDict(json_schema_extra=example(name="NVIDIA H100", memory_bytes=85_899_345_920))

    name: str
    memory_bytes: int


class AgentPool(Given):
    """Where its blocks are."""

    model_config = ConfigDict(
        json_schema_extra=example(
            capacity_bytes=268_435_456, used_bytes=31_457_280, block_tokens=16, block_bytes={"fp8": 24_576}
        )
    )

    capacity_bytes: int
    used_bytes: int | None = Field(description="By its last heartbeat; null before the first.")
    block_tokens: int
    block_bytes: dict[KvDtype, int] = Field(description="What one block takes, by format.")


class IsolationRounds(Given):
    """Rounds of the last hour."""

    model_config = ConfigDict(json_schema_extra=example(isolated=354, leaked=0, unkept=2, failed=0))

    isolated: int = Field(description="The same tenant found its prompt cached, the other did not.")
    leaked: int = Field(description="A tenant found cached what it had not sent: isolation is broken.")
    unkept: int = Field(description="Nobody found anything cached, which proves nothing.")
    failed: int = Field(description="The engine did not answer the probes.")


class IsolationTiming(Given):
    """How well one tenant can tell by time that another's prompt is cached, of the latest pairs of one gateway."""

    model_config = ConfigDict(json_schema_extra=example(pairs=1000, auc=0.503, low=0.461, high=0.545))

    pairs: int
    auc: float = Field(description="Area under the ROC curve. 0.5: not at all.")
    low: float = Field(description="Of its 99.9 % interval.")
    high: float


ISOLATION = {
    "state": "isolated",
    "rounds": {"isolated": 354, "leaked": 0, "unkept": 2, "failed": 0},
    "told_at": WHEN,
    "last_failure": None,
    "last_failure_at": None,
    "timing": {"pairs": 1000, "auc": 0.503, "low": 0.461, "high": 0.545},
}


class IsolationShown(Given):
    """What gateways' isolation probes say of an engine."""

    model_config = ConfigDict(json_schema_extra=example(**ISOLATION))

    state: Literal["isolated", "broken", "unproven", "unknown"] = Field(
        description="`broken`: by count or by time. `unproven`: probes prove nothing. `unknown`: no probe for an hour."
    )
    rounds: IsolationRounds
    told_at: datetime | None
    last_failure: str | None = Field(description="What was so in the last round that was not as it should be.")
    last_failure_at: datetime | None
    timing: IsolationTiming | None = Field(description="null: fewer than 30 pairs.")


AGENT = {
    "id": "agent-1",
    "kind": "engine",
    "backend": "paged",
    "backend_version": "0.1.0",
    "state": "ready",
    "in_sync": True,
    "desired_hash": HASH,
    "applied_hash": HASH,
    "last_seen_seconds": 0.4,
    "models": [{"name": "luminet-demo", "revision": "3f9a1c", "kv_dtypes": ["bf16", "fp8"], "context_tokens": 2048}],
    "kv_dtypes": ["bf16", "fp8"],
    "computed_as": {},
    "pool": {
        "capacity_bytes": 268_435_456,
        "used_bytes": 31_457_280,
        "block_tokens": 16,
        "block_bytes": {"fp8": 24_576},
    },
    "why": None,
    "conditions": {},
    "group": "default",
    "labels": {"tier": "canary"},
    "version": "0.1.0",
    "address": "http://10.0.0.7:8101",
    "accelerator": None,
    "desired_generation": 12,
    "desired_at": WHEN,
    "applied_generation": 12,
    "applied_at": WHEN,
    "last_seen_at": WHEN,
    "clock_skew_seconds": 0.01,
    "draining": False,
    "heartbeat": 812,
    "running": 3,
    "waiting": 0,
    "spooled": 0,
    "enrolled_at": WHEN,
    "enrolled_by": "first machines",
    "revoked_at": None,
    "isolation": ISOLATION,
    "enforcement": {
        "ttl_seconds": {"grade": "enforced", "why": "", "values": {}},
        "offload": {
            "grade": "best_effort",
            "why": "no disk tier",
            "values": {
                "none": {"grade": "enforced", "why": ""},
                "host": {"grade": "enforced", "why": ""},
                "disk": {"grade": "refused", "why": "no disk tier"},
            },
        },
    },
    "not_enforced": [],
}


class ValueGrade(Given):
    grade: Grade = Field(
        description="`enforced`, `best_effort`, `refused` (it cannot), or `untested` (not reported, or never tried)."
    )
    why: str = Field(description="Why it is not `enforced`; empty where there is nothing to say.")


class FieldGrade(ValueGrade):
    """How far an engine enforces a policy field."""

    values: dict[str, ValueGrade] = Field(description="Of a field whose values differ in it; else empty.")


class NotEnforced(Given):
    field: str
    value: str | None = Field(description="null: whatever the value.")
    why: str


class AgentShown(Given):
    """An engine or a gateway: what it is, what it is to hold, what it holds, and what is wrong with it."""

    model_config = ConfigDict(json_schema_extra=example(**AGENT))

    id: str
    kind: AgentKind
    backend: str | None = Field(
        description="Who computes: `paged` is our own engine, `vllm` is vLLM. null: it has not said."
    )
    backend_version: str | None = Field(description="Of what computes, such as 0.32.0; null: it has not said.")
    state: AgentState
    in_sync: bool = Field(description="Whether it holds what it is to hold, by its own word and by its engine's.")
    desired_hash: str | None = Field(description="Of the snapshot it is to hold; null: none yet.")
    applied_hash: str | None = Field(description="Of the one it last acknowledged.")
    last_seen_seconds: float | None = Field(description="How long ago it was last heard; null: never.")
    models: list[AgentModel]
    kv_dtypes: list[KvDtype] = Field(description="Formats it can really do.")
    computed_as: dict[KvDtype, KvDtype] = Field(
        description="Formats that it computes as another one, with that one: `fp8` is `fp8_e4m3` on vLLM."
    )
    pool: AgentPool
    why: str | None = Field(description="What is wrong with it, the gravest; null: nothing.")
    conditions: dict[str, ConditionShown] = Field(
        description="Everything that is wrong: `stale`, `engine_down`, `rejected`, `unknown_hash`, `engine_differs`, "
        "`behind`, `unwritable`, `capability_lost`, `unproven`, `refusing`, `version_skew`, `clock_skew`, "
        "`lost_reports`."
    )
    group: str
    labels: dict[str, str]
    version: str | None
    address: str | None = Field(description="Where gateways reach it.")
    accelerator: AgentAccelerator | None
    desired_generation: int = Field(description="Counts up whenever it is to hold something else.")
    desired_at: datetime | None
    applied_generation: int
    applied_at: datetime | None
    last_seen_at: datetime | None
    clock_skew_seconds: float = Field(description="How far ahead its clock is.")
    draining: bool = Field(description="Whether an operator wants it to take nothing new.")
    heartbeat: int = Field(
        description="Counts its heartbeats since it started: `running`, `waiting` and `spooled` are of this one. "
        "`last_seen_at` also moves with its reports, which say nothing of these three."
    )
    running: int | None = Field(description="Requests it is answering.")
    waiting: int | None = Field(description="Requests that wait in it.")
    spooled: int | None = Field(description="Reports that it has not delivered yet.")
    enrolled_at: datetime
    enrolled_by: str = Field(description="The name of the join token.")
    revoked_at: datetime | None
    isolation: IsolationShown | None = Field(description="Whether it keeps tenants apart; null: a gateway.")
    enforcement: dict[str, FieldGrade] = Field(description="Every policy field with its grade; empty: a gateway.")
    not_enforced: list[NotEnforced] = Field(
        description="What of the policies in force in its group it does not enforce, however much it is in sync."
    )


class AgentUpdate(Taken):
    """What is left out stays. `labels` replaces all of them."""

    model_config = ConfigDict(json_schema_extra=example(labels={"tier": "canary"}, group="default"))

    labels: Labels | None = Field(default=None, description="Words by which rollouts choose it.")
    group: GroupSlug | None = Field(default=None, description="The group whose namespaces it serves.")


class JoinTokenCreate(Taken):
    """Good for one agent within an hour, unless told otherwise. `agent` binds it to a name, also one that is taken."""

    model_config = ConfigDict(json_schema_extra=example(name="first machines", uses=10, expires_in_seconds=3600))

    name: Name
    kind: AgentKind | None = Field(default=None, description="null: either.")
    group: GroupSlug = Field(default="default", description="The group that its agents belong to.")
    agent: AgentName | None = Field(
        default=None, description="The one agent it is for. One that exists is taken over: its credentials end."
    )
    uses: int | None = Field(default=1, ge=1, le=100_000, description="How many agents; null: any number.")
    expires_in_seconds: int = Field(default=3600, ge=60, le=31_622_400, description="How long it is good for.")


JOIN_TOKEN = {
    "id": ID,
    "name": "first machines",
    "prefix": "ljt_7Gq2mZx1",
    "state": "open",
    "kind": None,
    "group": "default",
    "agent": None,
    "uses": 0,
    "uses_left": 10,
    "created_by": "operator@luminet.example (deploy pipeline)",
    "created_at": WHEN,
    "expires_at": WHEN,
}


class JoinTokenShown(Given):
    model_config = ConfigDict(json_schema_extra=example(**JOIN_TOKEN))

    id: UUID
    name: str
    prefix: str = Field(description="The secret's beginning, by which it is recognised.")
    state: Literal["open", "spent", "expired"]
    kind: AgentKind | None
    group: SlugOf
    agent: NoneIfEmpty
    uses: int = Field(description="How many agents joined with it.")
    uses_left: int | None = Field(description="null: any number.")
    created_by: str
    created_at: datetime
    expires_at: datetime | None


class JoinTokenCreated(JoinTokenShown):
    """The secret is shown now and never again."""

    model_config = ConfigDict(json_schema_extra=example(**JOIN_TOKEN, secret="ljt_7Gq2mZx1…"))  # noqa: S106

    secret: OneTimeSecret
