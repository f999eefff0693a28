"""Bodies for members and their links, API keys, operators' tokens, and the caller's identity."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AliasPath, ConfigDict, Field, StringConstraints

from controlplane.api.schemas.base import Given, OneTimeSecret, Taken, example
from controlplane.api.schemas.tenants import ID, LATER, WHEN, Ending, Name, Slug

Email = Annotated[str, StringConstraints(min_length=3, max_length=254), Field(description="Where the person signs in.")]
Role = Annotated[
    Literal["viewer", "editor", "admin"],
    Field(description="`viewer` reads, `editor` also changes policies, `admin` also manages people and keys."),
]
ScopeName = Literal["infer", "stats:read", "policy:read", "policy:write", "admin"]
OperatorScopeName = Literal["stats:read", "policy:read", "policy:write", "admin"]
Scopes = Annotated[list[ScopeName], Field(min_length=1, max_length=5, description="What it may do.")]


class MemberCreate(Taken):
    model_config = ConfigDict(json_schema_extra=example(email="kim@acme.example", role="editor"))

    email: Email
    role: Role


class MemberUpdate(Taken):
    model_config = ConfigDict(json_schema_extra=example(role="admin"))

    role: Role


class MemberShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID, email="kim@acme.example", role="editor", state="invited", created_at=WHEN, joined_at=None
        )
    )

    id: UUID
    email: str
    role: Role
    state: Literal["invited", "joined"]
    created_at: datetime
    joined_at: datetime | None


LINK = "https://luminet.example.com/invitation/q2VYc1x0…"


class MemberInvited(MemberShown):
    """The link is shown now and never again. It works once, for seven days."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID,
            email="kim@acme.example",
            role="editor",
            state="invited",
            created_at=WHEN,
            joined_at=None,
            invitation_url=LINK,
            invitation_expires_at="2026-11-28T15:00:00Z",
        )
    )

    invitation_url: OneTimeSecret
    invitation_expires_at: datetime


class LinkShown(Given):
    """A link that works once; earlier ones for the same person have ended."""

    model_config = ConfigDict(json_schema_extra=example(kind="invitation", url=LINK, expires_at="2026-11-28T15:00:00Z"))

    kind: Literal["invitation", "reset"] = Field(validation_alias="purpose")
    url: OneTimeSecret
    expires_at: datetime


class KeyCreate(Taken):
    """`namespaces` binds the key to some; left out, it is for all of the organisation's. `expires_at` null: never."""

    model_config = ConfigDict(
        json_schema_extra=example(name="production", scopes=["infer"], namespaces=["default"], expires_at=LATER)
    )

    name: Name
    scopes: Scopes
    namespaces: Annotated[list[Slug], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="The namespaces it is bound to; null: all, also later ones."
    )
    expires_at: Ending = None


class KeyShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID,
            name="production",
            prefix="lmk_7Gq2mZx1",
            scopes=["infer"],
            namespaces=["default"],
            created_by="kim@acme.example",
            created_at=WHEN,
            expires_at=None,
            last_used_at=None,
        )
    )

    id: UUID
    name: str
    prefix: str = Field(description="The secret's beginning, by which it is recognised.")
    scopes: list[ScopeName]
    namespaces: list[str] | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = Field(
        description="At this API, to the minute. What was asked with it at gateways is by_key of stats."
    )


class KeyCreated(KeyShown):
    """The secret is shown now and never again."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID,
            name="production",
            prefix="lmk_7Gq2mZx1",
            scopes=["infer"],
            namespaces=["default"],
            created_by="kim@acme.example",
            created_at=WHEN,
            expires_at=None,
            last_used_at=None,
            secret="lmk_7Gq2mZx1…",  # noqa: S106
        )
    )

    secret: OneTimeSecret


class OperatorTokenCreate(Taken):
    model_config = ConfigDict(
        json_schema_extra=example(name="deploy pipeline", scopes=["policy:write"], expires_at=LATER)
    )

    name: Name
    scopes: Annotated[list[OperatorScopeName], Field(min_length=1, max_length=4, description="What it may do.")]
    expires_at: Ending = None


class OperatorTokenShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID,
            name="deploy pipeline",
            prefix="lmo_9sT4bQe0",
            operator="operator@luminet.example",
            scopes=["policy:write"],
            created_at=WHEN,
            expires_at=None,
            last_used_at=None,
        )
    )

    id: UUID
    name: str
    prefix: str
    operator: str = Field(validation_alias=AliasPath("user", "email"))
    scopes: list[OperatorScopeName]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


class OperatorTokenCreated(OperatorTokenShown):
    """The secret is shown now and never again."""

    model_config = ConfigDict(
        json_schema_extra=example(
            id=ID,
            name="deploy pipeline",
            prefix="lmo_9sT4bQe0",
            operator="operator@luminet.example",
            scopes=["policy:write"],
            created_at=WHEN,
            expires_at=None,
            last_used_at=None,
            secret="lmo_9sT4bQe0…",  # noqa: S106
        )
    )

    secret: OneTimeSecret


class CallerShown(Given):
    """Who this token speaks for, and what it may do."""

    model_config = ConfigDict(
        json_schema_extra=example(
            kind="key",
            name="automation",
            scopes=["policy:read", "policy:write"],
            organisation="acme",
            namespaces=None,
        )
    )

    kind: Literal["key", "operator-token"]
    name: str
    scopes: list[str]
    organisation: str | None = Field(description="null: the whole fleet.")
    namespaces: list[str] | None = Field(description="What it is bound to; null: everything of its organisation.")
