"""The configuration file that customers keep in Git: its parts and their values. No I/O.

An omitted part is not managed and stays as it is. `plan.py` checks how the parts fit together.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WrapValidator,
)

from tenants.bounds import Bounds
from tenants.errors import InvalidFields
from tenants.json_schemas import defaults_described
from tenants.limits import Limits
from tenants.models.organisations import SLUG_PATTERN
from tenants.policy import Policy
from tenants.validation import field_problems

VERSION = 1
MOST_PARTS = 20_000  # organisations and namespaces; a large fleet of 10,000 namespaces is one document
DIALECT = "https://json-schema.org/draft/2020-12/schema"
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
Slug = Annotated[str, StringConstraints(pattern=SLUG_PATTERN)]
Part = TypeVar("Part")


def _given(value: Any) -> Any:
    if value is None:
        raise ValueError("is null: leave it out to keep what is there, or say what it shall be ({} for nothing)")
    return value


def _empty_for_null(value: Any) -> Any:
    return {} if value is None else value


def _counted(value: Any) -> Any:
    """Check the size first: a small request could otherwise cause much work."""
    if isinstance(value, dict):
        namespace_maps = [
            organisation.get("namespaces") for organisation in value.values() if isinstance(organisation, dict)
        ]
        parts = len(value) + sum(len(namespaces) for namespaces in namespace_maps if isinstance(namespaces, dict))
        if parts > MOST_PARTS:
            raise ValueError(f"{parts} organisations and namespaces, {MOST_PARTS} is the most in one document")
    return value


def _whole(value: Any) -> Any:
    """Check the version; Python treats True and 1.0 as equal to 1."""
    if type(value) is not int or value != VERSION:
        raise ValueError(f"must be {VERSION}: no other version of this format is known here")
    return value


# `policy:` without a value could mean "keep it" or "empty it", so it is refused. A namespace's slug without a value can
# only mean that the namespace must exist. These are not unions with None, which would add their own names to the paths
# of errors.
if TYPE_CHECKING:
    Managed: TypeAlias = Part | None
    Entry: TypeAlias = Annotated[Part, "or null"]
else:

    class Managed:
        def __class_getitem__(cls, part: Any) -> Any:
            return Annotated[part, BeforeValidator(_given)]

    class Entry:
        def __class_getitem__(cls, part: Any) -> Any:
            return Annotated[part, BeforeValidator(_empty_for_null, json_schema_input_type=part | None)]


def _part(description: str) -> Any:
    return Field(default=None, description=description, json_schema_extra=_without_default)


def _without_default(schema: dict[str, Any]) -> None:
    """Remove the default null, because an omitted part differs from null."""
    schema.pop("default", None)


class NamespaceConfig(BaseModel):
    """One namespace. Nothing behind its name: it shall exist."""

    model_config = STRICT

    name: Managed[Annotated[str, StringConstraints(max_length=100)]] = _part("How people call it.")
    group: Managed[Slug] = _part("Which agents serve it. For operators.")
    policy: Managed[Policy] = _part(
        "What this namespace says itself; a field left out inherits. {}: everything inherits."
    )


class OrganisationConfig(BaseModel):
    """One organisation. Its namespace `default` exists, named here or not."""

    model_config = STRICT

    name: Managed[Annotated[str, StringConstraints(min_length=1, max_length=100)]] = _part(
        "How people call it. A new organisation without one is called like its slug."
    )
    state: Managed[Literal["active", "suspended"]] = _part(
        "suspended: readable, not changed by its own people, no inference. For operators."
    )
    policy: Managed[Policy] = _part("What the organisation says for all its namespaces; a field left out inherits.")
    bounds: Managed[Bounds] = _part("What its members may change; a field left out only operators may. For operators.")
    limits: Managed[Limits] = _part("How much it may have and ask for; one left out has its default. For operators.")
    namespaces: Managed[dict[Slug, Entry[NamespaceConfig]]] = _part(
        "Its namespaces by slug. With --prune others that the file owns are deleted, but never default."
    )


class ConfigDocument(BaseModel):
    """Organisations, namespaces and policies of a fleet. A part left out stays as it is."""

    model_config = ConfigDict(
        **STRICT,
        title="Luminet configuration",
        json_schema_extra={
            "examples": [
                {
                    "version": 1,
                    "organisations": {
                        "acme": {
                            "name": "Acme Inc.",
                            "policy": {"ttl_seconds": 600},
                            "namespaces": {"default": {}, "chat": {"policy": {"kv_dtype": "int8"}}},
                        }
                    },
                }
            ]
        },
    )

    version: Annotated[Literal[1], BeforeValidator(_whole)] = Field(description="The version of this format.")
    owner: Managed[Slug] = _part(
        "Who owns the organisations and namespaces that this file makes or takes over, such as a team. With --prune "
        "exactly what carries this label, and is not named, is deleted. An operator's label and an organisation's own "
        "differ, even with the same name."
    )
    policy: Managed[Policy] = _part("What the fleet says for everybody. For operators.")
    organisations: Annotated[Managed[dict[Slug, Entry[OrganisationConfig]]], BeforeValidator(_counted)] = _part(
        "Organisations by slug; with their namespaces at most 20,000. With --prune operators delete others that the "
        "file owns."
    )


def _named(value: Any, read: Callable[[Any], Any]) -> ConfigDocument:
    """Validate a document. Paths in errors start at its root, even if it is embedded."""
    try:
        document: ConfigDocument = read(value)
    except ValidationError as error:
        raise InvalidFields(field_problems(error.errors(include_url=False, include_input=False))) from None
    return document


NamedDocument = Annotated[ConfigDocument, WrapValidator(_named)]


def document_read(value: Any) -> ConfigDocument:
    """Return the document. Raise InvalidFields with every wrong path."""
    return _named(value, ConfigDocument.model_validate)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the document, for editors and for checks without a server."""
    schema = ConfigDocument.model_json_schema(mode="validation")
    for part in (schema, *schema["$defs"].values()):
        defaults_described(part)
    _close(schema)
    return {"$schema": DIALECT, **schema}


def _close(schema: Any) -> None:
    """Forbid members whose names do not match the pattern."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for inner in schema.values():
            _close(inner)
