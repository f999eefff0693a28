"""Bodies for policies at every level, their previews and revisions, bounds and limits."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, StringConstraints

from controlplane.api.schemas.base import EVERY_MEMBER, Given, Taken, example
from controlplane.api.schemas.tenants import ID
from controlplane.rollouts.spec import RolloutSpec
from engine_agent.contracts.enforcement import Grade
from tenants.bounds import BUILT_IN_BOUNDS, Bounds
from tenants.limits import Limits
from tenants.policy import BUILT_IN, Policy

Note = Annotated[str, StringConstraints(max_length=500), Field(description="Why, for whoever reads the history.")]
Origin = Literal["fleet", "organisation", "namespace", "model"]
HASH = "9ddc6a7f7e0f6d0c1e9a3a5f0d6b6f3f6a8c1b2d3e4f5a6b7c8d9e0f1a2b3c4d"
POLICY = {"ttl_seconds": 600, "kv_dtype": "int8", "models": {"qwen3-8b": {"kv_dtype": "bf16"}}}
CHANGE = {
    "field": "ttl_seconds",
    "model": None,
    "before": 300,
    "after": 600,
    "before_origin": "fleet",
    "after_origin": "namespace",
}


class PolicyPut(Taken):
    """Replaces the level's policy: a field left out is inherited from the level above."""

    model_config = ConfigDict(json_schema_extra=example(policy=POLICY, note="Longer chats, ticket 4711"))

    policy: Policy
    rollout: RolloutSpec | None = None
    note: Note = ""


class PolicyShown(Given):
    """What this level itself says."""

    model_config = ConfigDict(json_schema_extra=example(revision=7, policy=POLICY, effective_hash=HASH))

    revision: int
    policy: dict[str, Any]
    effective_hash: str


class PolicyPublished(PolicyShown):
    model_config = ConfigDict(json_schema_extra=example(revision=7, policy=POLICY, effective_hash=HASH, rollout=ID))

    rollout: UUID | None = Field(description="How it comes to the agents; null where it concerns none.")


class LevelShown(Given):
    level: Literal["fleet", "organisation", "namespace"] = Field(validation_alias="kind")
    revision: int


class EnforcementShown(Given):
    """Whether the agents that serve a policy enforce one of its fields, at the value in force."""

    grade: Grade = Field(
        description="`enforced`: by all of them. `best_effort`: by some, or not exactly. `refused`: by none of them. "
        "`untested`: not known."
    )
    enforcing: int = Field(description="How many enforce it.")
    agents: int = Field(description="How many serve it.")
    why: str | None = Field(description="Why not all enforce it; operators read which agents. null: nothing to say.")


class EffectiveShown(Given):
    """What is in force: every field, the level it comes from, and the hash agents acknowledge."""

    model_config = ConfigDict(
        json_schema_extra=example(
            policy={**BUILT_IN, "ttl_seconds": 600},
            origin={**dict.fromkeys(BUILT_IN, "fleet"), "ttl_seconds": "namespace"},
            model=None,
            model_origin={},
            levels=[{"level": "fleet", "revision": 0}, {"level": "namespace", "revision": 7}],
            effective_hash=HASH,
            enforcement={"ttl_seconds": {"grade": "enforced", "enforcing": 3, "agents": 3, "why": None}},
        )
    )

    policy: dict[str, Any] = Field(validation_alias="values")
    origin: dict[str, Origin]
    model: str | None
    model_origin: dict[str, str] = Field(
        validation_alias="via", description="For fields of origin `model`: which level's override it is."
    )
    levels: list[LevelShown]
    effective_hash: str
    enforcement: dict[str, EnforcementShown] = Field(description="By field, for every field.")


class ChangeShown(Given):
    field: str
    model: str | None
    before: Any
    after: Any
    before_origin: Origin
    after_origin: Origin


class WarningShown(Given):
    code: str
    field: str
    message: str


class AffectedShown(Given):
    namespaces: int = Field(description="In how many namespaces something else would be in force.")
    named: list[str] = Field(validation_alias="namespaces_named", description="The first of them.")
    agents: list[str] = Field(description="Engines that would apply it, for operators; empty for others.")


class GroupShareShown(Given):
    """Reservations and pins of everybody on the same agents, were this published."""

    promised: float
    at_most: float
    is_too_much: bool


class ResolvedShareShown(Given):
    """One share on one agent, as whole blocks of the policy's format."""

    agent: str
    field: str
    share: float
    blocks: int
    tokens: int
    gib: float


class ShareBandShown(Given):
    """One share on each agent, from the smallest pool to the largest, each known to a power of two."""

    field: str
    share: float
    bytes_least: int
    bytes_most: int
    tokens_least: int
    tokens_most: int


class SharesShown(Given):
    group: GroupShareShown | None = Field(validation_alias="group_share", description="For operators; null for others.")
    agents: list[ResolvedShareShown] = Field(validation_alias="shares", description="For operators; empty for others.")
    bands: list[ShareBandShown] = Field(description="For members and keys of an organisation; empty for operators.")


class FieldProblemShown(Given):
    field: str
    message: str


class PolicyPreviewed(Given):
    """What publishing the same body would do. Nothing has been changed."""

    model_config = ConfigDict(
        json_schema_extra=example(
            base_revision=6,
            diff=[CHANGE],
            effective_hash=HASH,
            affected={"namespaces": 1, "named": ["acme/chat"], "agents": []},
            shares={"group": {"promised": 0.35, "at_most": 0.9, "is_too_much": False}, "agents": [], "bands": []},
            expected_effect=["ttl_seconds: 5 min → 10 min"],
            warnings=[],
            problems=[],
        )
    )

    base_revision: int
    diff: list[ChangeShown] = Field(validation_alias="changes")
    effective_hash: str
    affected: AffectedShown
    shares: SharesShown
    expected_effect: list[str] = Field(validation_alias="effects")
    warnings: list[WarningShown]
    problems: list[FieldProblemShown] = Field(description="Why publishing would be refused; empty when it would not.")


class RevisionShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            revision=7,
            policy=POLICY,
            note="Longer chats, ticket 4711",
            author="kim@acme.example",
            at="2026-11-21T15:00:00Z",
            rolled_back_to=None,
        )
    )

    revision: int = Field(validation_alias="number")
    policy: dict[str, Any]
    note: str
    author: str
    at: datetime
    rolled_back_to: int | None


class Rollback(Taken):
    """`revision` 0 is the beginning, when the level said nothing."""

    model_config = ConfigDict(json_schema_extra=example(revision=1))

    revision: Annotated[int, Field(ge=0, le=2_147_483_647)] = Field(description="The one to return to.")
    note: Note = ""


class BoundsPut(Taken):
    """A field left out may be changed by operators only."""

    model_config = ConfigDict(
        json_schema_extra=example(
            bounds={"ttl_seconds": {"min": 60, "max": 3600}, "kv_dtype": {"allowed": ["fp8", "int8"]}}
        )
    )

    bounds: Bounds


class BoundsShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(revision=0, bounds=BUILT_IN_BOUNDS.model_dump(exclude_none=True))
    )

    revision: int
    bounds: dict[str, Any]


class LimitsPut(Taken):
    """A limit left out has its default; null means none."""

    model_config = ConfigDict(json_schema_extra=example(limits={"requests_per_minute": 600, "max_namespaces": 50}))

    limits: Limits


class LimitsInForce(Limits):
    """Every limit; null means no limit."""

    model_config = EVERY_MEMBER


class LimitsShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(revision=1, limits=Limits(requests_per_minute=600).model_dump())
    )

    revision: int
    limits: LimitsInForce
