"""The file people keep in Git: which parts it has and what may stand in them. Pure.

A part left out is not managed: it stays as it is. What the parts mean beside each other is judged in plan.py.
"""

from collections.abc import Callable, Iterator
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
from tenants.errors import FieldProblem, InvalidFields
from tenants.limits import Limits
from tenants.models.organisations import SLUG_PATTERN
from tenants.policy import Policy

VERSION = 1
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


def _whole(value: Any) -> Any:
    """To Python True and 1.0 are 1, too."""
    if type(value) is not int or value != VERSION:
        raise ValueError(f"must be {VERSION}: no other version of this format is known here")
    return value


# `policy:` with nothing behind it could mean "leave it" or "empty it": refused. A namespace's slug with nothing
# behind it can only mean that it is wanted. Not unions with None: those put names of their own into places of errors.
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
    """A part that is left out is not a part that is null."""
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
        "Its namespaces by slug. With --prune others are deleted, but never default."
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
    policy: Managed[Policy] = _part("What the fleet says for everybody. For operators.")
    organisations: Managed[dict[Slug, Entry[OrganisationConfig]]] = _part(
        "Organisations by slug. With --prune operators delete all others."
    )


def _named(value: Any, read: Callable[[Any], Any]) -> ConfigDocument:
    """Places count from the document's own root, wherever it is embedded."""
    try:
        document: ConfigDocument = read(value)
    except ValidationError as error:
        raise InvalidFields(problems_of(error)) from None
    return document


NamedDocument = Annotated[ConfigDocument, WrapValidator(_named)]


def document_read(value: Any) -> ConfigDocument:
    """The document, or InvalidFields with every place that is wrong."""
    return _named(value, ConfigDocument.model_validate)


def problems_of(error: ValidationError) -> Iterator[FieldProblem]:
    for one in error.errors(include_url=False, include_context=True, include_input=False):
        place = [str(part) for part in one["loc"] if part != "[key]"]
        yield FieldProblem(".".join(place) or "document", _message(one["type"], one["msg"], one.get("ctx", {})))


def _message(kind: str, words: str, context: dict[str, Any]) -> str:
    if kind == "missing":
        return "is required"
    if kind in ("model_type", "dict_type"):
        return "must be an object"
    if kind == "extra_forbidden":
        return "is no field here"
    if kind == "string_pattern_mismatch" and context.get("pattern") == SLUG_PATTERN:
        return "must be 1 to 63 of a-z, 0-9 and inner hyphens"
    if kind == "string_pattern_mismatch":
        return "must be the name of a model: letters, digits and . _ : / @ + -"
    return words.removeprefix("Value error, ")


def config_schema() -> dict[str, Any]:
    """The document as JSON Schema, for editors and for whoever wants to check a file without a server."""
    schema = ConfigDocument.model_json_schema(mode="validation")
    _close(schema)
    return {"$schema": DIALECT, **schema}


def _close(schema: Any) -> None:
    """What does not fit the pattern of its names is not allowed either."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for inner in schema.values():
            _close(inner)
