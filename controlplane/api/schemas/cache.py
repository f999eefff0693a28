"""Bodies for pins, purges, operations and the audit trail."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from controlplane.api.schemas.base import Given, Taken, example
from controlplane.api.schemas.tenants import ID, LATER, WHEN, Ending, Name
from tenants.policy import ModelName

MAX_TOKENS = 131_072


class Message(BaseModel):
    """A chat message as the gateway takes it; what a model's template makes of further members is its own affair."""

    model_config = ConfigDict(extra="allow")

    role: Annotated[str, StringConstraints(min_length=1, max_length=40)] = Field(description="`system`, `user`, …")


class PinCreate(Taken):
    """One of `messages`, `prompt` and `token_ids`. Content is write-only: nobody can read it back."""

    model_config = ConfigDict(
        json_schema_extra=example(
            name="handbook",
            model="qwen3-8b",
            messages=[{"role": "system", "content": "You answer from the handbook."}],
            expires_at=LATER,
        )
    )

    name: Name
    model: ModelName = Field(description="The model whose cache it is kept in.")
    messages: Annotated[list[Message], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="How a conversation begins, as the gateway takes it."
    )
    prompt: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="How a completion's prompt begins."
    )
    token_ids: (
        Annotated[list[Annotated[int, Field(ge=0, le=4_294_967_295)]], Field(min_length=1, max_length=MAX_TOKENS)]
        | None
    ) = Field(default=None, description="The same as the model's own tokens.")
    expires_at: Ending = None

    @model_validator(mode="after")
    def _one_content(self) -> "PinCreate":
        used_fields = [name for name in ("messages", "prompt", "token_ids") if getattr(self, name) is not None]
        if len(used_fields) != 1:
            raise ValueError(f"give one of messages, prompt and token_ids, not {len(used_fields)}")
        return self

    @property
    def content(self) -> tuple[str, Any]:
        """Return the kind of content that was given, and the content."""
        if self.messages is not None:
            return "messages", [message.model_dump() for message in self.messages]
        return ("prompt", self.prompt) if self.prompt is not None else ("token_ids", self.token_ids)


PIN_ON_AGENT = {
    "agent": "agent-1",
    "state": "active",
    "is_warming": False,
    "wanted_tokens": 1_024,
    "resident_tokens": 1_024,
    "resident_bytes": 2_097_152,
    "problem": "",
    "as_of": WHEN,
}


class PinOnAgent(Given):
    """What an agent holds of a pin, as it last told."""

    model_config = ConfigDict(json_schema_extra=example(**PIN_ON_AGENT))

    agent: str
    state: str = Field(
        description="`active`, `content_missing`, `over_budget`, `expired`, `disabled` (caching is off), `refused`, "
        "`purged`; what else a newer agent may say."
    )
    is_warming: bool = Field(description="It is being computed.")
    wanted_tokens: int | None = Field(description="In whole blocks; null: its content is not there to be counted.")
    resident_tokens: int
    resident_bytes: int
    problem: str = Field(description="What stands in its way, in words; else empty.")
    as_of: datetime = Field(validation_alias="at")


class PinShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID,
            name="handbook",
            model="qwen3-8b",
            content="messages",
            content_bytes=67,
            expires_at=None,
            created_by="kim@acme.example",
            created_at=WHEN,
            agents=[PIN_ON_AGENT],
        )
    )

    id: UUID
    name: str
    model: str
    content: Literal["messages", "prompt", "token_ids"] = Field(validation_alias="content_kind")
    content_bytes: int
    expires_at: datetime | None
    created_by: str
    created_at: datetime
    agents: list[PinOnAgent] = Field(description="Those that told of it.")


class Purge(Taken):
    """Pins survive a purge, and are warmed again, unless they are included."""

    model_config = ConfigDict(json_schema_extra=example(include_pins=False))

    include_pins: bool = Field(default=False, description="Whether pinned prefixes are purged too.")


PURGE = Purge()  # without a body


class OperationStarted(Given):
    model_config = ConfigDict(json_schema_extra=example(operation=ID))

    operation: UUID


class Receipt(Given):
    """An agent's proof that it did its part."""

    agent: str
    scope: str
    blocks: int
    bytes: int
    at: datetime
    note: str | None = Field(default=None, description="Why there is no proof: its agent was taken out, or failed.")


class OperationShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID,
            kind="purge",
            scope="acme/chat",
            state="done",
            receipts=[],
            awaited_agents=[],
            created_by="kim@acme.example",
            created_at=WHEN,
            finished_at=WHEN,
        )
    )

    id: UUID
    kind: str
    scope: str
    state: Literal["running", "done", "failed"]
    receipts: list[Receipt]
    awaited_agents: list[str] = Field(description="Agents whose receipt is still missing.")
    created_by: str
    created_at: datetime
    finished_at: datetime | None


class AuditActor(Given):
    kind: str
    id: str
    name: str


class AuditShown(Given):
    """To organisations operators and their addresses are not named, nor where a record stands among others'."""

    model_config = ConfigDict(
        json_schema_extra=example(
            seq=42,
            at=WHEN,
            actor={"kind": "key", "id": ID, "name": "automation"},
            verb="policy.publish",
            target="acme/chat",
            before={"revision": 6, "policy": {}},
            after={"revision": 7, "policy": {"ttl_seconds": 600}},
            address="192.0.2.7",
            request_id="4f6d3c1c9b8e4a0f",
            hash="1f" * 32,
        )
    )

    seq: int | None
    at: datetime
    actor: AuditActor
    verb: str
    target: str
    before: Any
    after: Any
    address: str | None
    request_id: str | None
    hash: str | None
