"""Bodies for configuration documents, their plans and their results."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, RootModel, StringConstraints

from controlplane.api.schemas.base import Given, Taken, example
from controlplane.api.schemas.policies import HASH, FieldProblemShown
from controlplane.api.schemas.tenants import ID
from tenants.config.document import NamedDocument, Slug
from tenants.config.ownership import MAX_DELETES, ApplyOptions

Verb = Literal[
    "policy.publish",
    "organisation.create",
    "organisation.update",
    "organisation.delete",
    "limits.set",
    "bounds.set",
    "namespace.create",
    "namespace.update",
    "namespace.delete",
]
DOCUMENT = {
    "version": 1,
    "organisations": {
        "acme": {
            "name": "Acme Inc.",
            "policy": {"ttl_seconds": 600},
            "namespaces": {"default": {}, "chat": {"policy": {"kv_dtype": "int8"}}},
        }
    },
}
CHANGE = {
    "verb": "policy.publish",
    "place": "acme/chat",
    "field": "organisations.acme.namespaces.chat.policy",
    "revision": 6,
    "inherited": [0, 2],
    "contents": "",
    "deletes": 0,
    "before": {},
    "after": {"kv_dtype": "int8"},
    "differences": [{"field": "kv_dtype", "model": None, "before": "fp8", "after": "int8"}],
    "more_differences": 0,
    "warnings": ["fp8 → int8 is a cold cache: blocks of the old format never match the new one."],
}
SUMMARY = {"create": 0, "change": 1, "delete": 0, "objects_deleted": 0}
PlanHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class ConfigPlan(Taken):
    """A part the document leaves out stays as it is."""

    model_config = ConfigDict(json_schema_extra=example(document=DOCUMENT, prune=False))

    document: NamedDocument
    prune: bool = Field(
        default=False,
        description="Delete what the document owns and does not name; never `default`. It needs a scope: "
        "`prune_organisations`, or an `owner` in the document.",
    )
    prune_organisations: Annotated[list[Slug], Field(max_length=1000)] | None = Field(
        default=None,
        description="Delete nothing outside these organisations. Without an `owner` in the document: those of their "
        "namespaces that it does not name and that no other file owns.",
    )
    take_ownership: bool = Field(
        default=False,
        description="Take over existing objects that the document names and that another file, or none, owns; without "
        "it they are refused.",
    )

    @property
    def options(self) -> ApplyOptions:
        return ApplyOptions(self.prune, frozenset(self.prune_organisations or ()), self.take_ownership)


class ConfigApply(ConfigPlan):
    """With `expected_plan` exactly what was planned is done, or nothing."""

    model_config = ConfigDict(json_schema_extra=example(document=DOCUMENT, prune=False, expected_plan=None))

    expected_plan: PlanHash | None = Field(default=None, description="The `hash` of the plan that was looked at.")
    max_deletes: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=MAX_DELETES,
        description="Refuse to delete more organisations and namespaces than this. A deleted organisation counts with "
        "all its namespaces.",
    )


class DifferenceShown(Given):
    field: str
    model: str | None
    before: Any
    after: Any


class PlannedChangeShown(Given):
    """One deed; its verb is the one the audit trail will have."""

    model_config = ConfigDict(json_schema_extra=example(**CHANGE))

    verb: Verb
    place: str = Field(description="`fleet`, an organisation's slug, or `organisation/namespace`.")
    field: str = Field(description="Where in the document.")
    revision: int = Field(description="Of what it changes, as it is now; 0 where nothing is there yet.")
    inherited: list[int] = Field(description="Of a policy: the revisions of the levels above it.")
    contents: str = Field(description="Of what is deleted: differs once anything inside it does.")
    deletes: int = Field(description="How many organisations and namespaces it deletes, those inside included.")
    before: Any
    after: Any
    differences: list[DifferenceShown] = Field(description="Field by field; of policies, what would be in force.")
    more_differences: int = Field(description="How many there are besides those shown: at most 100 of one deed.")
    warnings: list[str]


class SummaryShown(Given):
    create: int
    change: int
    delete: int
    objects_deleted: int = Field(description="Organisations and namespaces that go; `max_deletes` limits it.")


class ConfigPlanned(Given):
    """Nothing has been changed. Applying would be refused for the `problems`."""

    model_config = ConfigDict(json_schema_extra=example(hash=HASH, changes=[CHANGE], summary=SUMMARY, problems=[]))

    hash: str
    changes: list[PlannedChangeShown]
    summary: SummaryShown
    problems: list[FieldProblemShown]


class AppliedChange(Given):
    verb: Verb
    place: str


class ConfigApplied(Given):
    """What was done; `operation` is null when there was nothing to do."""

    model_config = ConfigDict(
        json_schema_extra=example(
            hash=HASH,
            changes=[{"verb": "policy.publish", "place": "acme/chat"}],
            summary=SUMMARY,
            operation=ID,
        )
    )

    hash: str
    changes: list[AppliedChange]
    summary: SummaryShown
    operation: UUID | None


class ConfigExported(RootModel[dict[str, Any]]):
    """A document that, planned, changes nothing."""

    model_config = ConfigDict(json_schema_extra=example(**DOCUMENT))


class ConfigSchema(RootModel[dict[str, Any]]):
    """JSON Schema, draft 2020-12."""

    model_config = ConfigDict(
        json_schema_extra=example(title="Luminet configuration", type="object", required=["version"])
    )
