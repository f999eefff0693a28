"""Bodies for organisations, namespaces and agent groups, and field types that other bodies share."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AliasPath, ConfigDict, Field, StringConstraints

from controlplane.api.schemas.base import FutureMoment, Given, SlugOf, Taken, example
from tenants.models.organisations import SLUG_PATTERN

Owner = Annotated[
    str,
    Field(
        description="The file that owns it: `OWNER` from operators, `ORGANISATION/OWNER` from the organisation's own "
        "people; empty: none."
    ),
]

Slug = Annotated[
    str, StringConstraints(pattern=SLUG_PATTERN), Field(description="Its name in paths; it never changes.")
]
GroupSlug = Annotated[str, StringConstraints(pattern=SLUG_PATTERN), Field(description="The agents that serve it.")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100), Field(description="Its name for people.")]
OptionalName = Annotated[str, StringConstraints(max_length=100), Field(description="Its name for people.")]
WHEN = "2026-11-21T15:00:00Z"
ID = "6e8bc430-9c3a-4d0b-b1e5-5a0b6f0f4c11"
Ending = Annotated[FutureMoment | None, Field(description="When it stops working; null: never.")]
LATER = "2036-01-01T00:00:00Z"


class OrganisationCreate(Taken):
    model_config = ConfigDict(json_schema_extra=example(slug="acme", name="Acme Inc."))

    slug: Slug
    name: Name


class OrganisationUpdate(Taken):
    """What is left out stays. Only operators may change `state`."""

    model_config = ConfigDict(json_schema_extra=example(name="Acme International"))

    name: Name | None = None
    state: Literal["active", "suspended"] | None = Field(default=None, description="For operators alone to change.")


class OrganisationShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(slug="acme", name="Acme Inc.", state="active", owner="", revision=1, created_at=WHEN)
    )

    slug: str
    name: str
    state: Literal["active", "suspended"]
    owner: Owner
    revision: int
    created_at: datetime


class NamespaceCreate(Taken):
    """`group` says which agents serve it; only operators may choose one."""

    model_config = ConfigDict(json_schema_extra=example(slug="chat", name="Support chat"))

    slug: Slug
    name: OptionalName = ""
    group: GroupSlug | None = None


class NamespaceUpdate(Taken):
    """What is left out stays. Only operators may change `group`."""

    model_config = ConfigDict(json_schema_extra=example(name="Support chat, all languages"))

    name: OptionalName | None = None
    group: GroupSlug | None = None


class NamespaceShown(Given):
    model_config = ConfigDict(
        json_schema_extra=example(
            slug="chat",
            name="Support chat",
            group="default",
            owner="",
            epoch=1,
            policy_revision=7,
            revision=1,
            created_at=WHEN,
        )
    )

    slug: str
    name: str
    group: SlugOf
    owner: Owner
    epoch: int = Field(description="Advances with every purge.")
    policy_revision: int = Field(validation_alias=AliasPath("policy_level", "revision"))
    revision: int
    created_at: datetime


class GroupCreate(Taken):
    model_config = ConfigDict(json_schema_extra=example(slug="eu-h200", name="H200 in Europe"))

    slug: Slug
    name: Name


class GroupShown(Given):
    model_config = ConfigDict(json_schema_extra=example(slug="eu-h200", name="H200 in Europe", created_at=WHEN))

    slug: str
    name: str
    created_at: datetime
