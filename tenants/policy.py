"""Policies: their fields, the effective values of several levels, and the origin of each value. No I/O."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, create_model

from engine_agent.contracts import policy_fields
from engine_agent.contracts.policy_fields import LEVELS, SECONDS, PolicyField
from engine_agent.contracts.protocol import policy_hash
from kernels.formats import OFFERED
from tenants.errors import FieldProblem
from tenants.json_schemas import defaults_described

if TYPE_CHECKING:
    KvDtype = str
else:
    KvDtype = Literal[OFFERED]  # at run time, the names in the registry, for validation and JSON Schema
MODEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$"
ModelName = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]
Values = Mapping[str, Any]

MAX_MODELS = 50
CAPS = {name: field.at_most for name, field in policy_fields.FIELDS.items() if field.at_most is not None}
JUDGED = frozenset((*CAPS, *CAPS.values()))  # fields that are checked against each other
NOTHING: Values = {}


def _distinct(values: list[KvDtype]) -> list[KvDtype]:
    if len(set(values)) != len(values):
        raise ValueError("names a format twice")
    return values


def _without_negative_zero(value: float) -> float:
    return value + 0.0  # the database has no -0.0, and hashes must match the stored value


def _typed(field: PolicyField) -> Any:
    """Return the field's pydantic type."""
    bounds = Field(ge=field.minimum, le=field.maximum)
    of_kind: Any
    match field.kind:
        case "switch":
            of_kind = bool
        case "seconds":
            of_kind = Annotated[int, bounds]
        case "choice":
            of_kind = Literal[field.choices]
        case "format":
            of_kind = KvDtype
        case "formats":
            of_kind = Annotated[list[KvDtype], Field(max_length=len(OFFERED)), AfterValidator(_distinct)]
        case "share" | "number":
            of_kind = Annotated[float, bounds, Field(allow_inf_nan=False), AfterValidator(_without_negative_zero)]
    return of_kind | None if field.is_nullable else of_kind


def _described(field: PolicyField) -> Any:
    default = list(field.default) if field.kind == "formats" else field.default
    return Field(default=default, description=f"{field.help} null: no maximum." if field.is_nullable else field.help)


def _inheritance_described(schema: dict[str, Any]) -> None:
    defaults_described(schema, "Inherits when left out; the fleet default is {}.")


if TYPE_CHECKING:  # the fields come from the registry, which type checkers cannot read

    class PolicyFields(BaseModel):
        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, field: str) -> Any: ...

else:
    PolicyFields = create_model(
        "PolicyFields",
        __config__=ConfigDict(extra="forbid", strict=True, frozen=True, json_schema_extra=_inheritance_described),
        __doc__="Fields of one level. The defaults are the fleet's until it publishes others; "
        "one left out is inherited.",
        __module__=__name__,
        **{name: (_typed(field), _described(field)) for name, field in policy_fields.FIELDS.items()},
    )


class Policy(PolicyFields):
    """What one level says: fields, and other values for single models."""

    models: dict[ModelName, PolicyFields] = Field(
        default_factory=dict, max_length=MAX_MODELS, description="Other values for single models."
    )
    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

    def said(self) -> dict[str, Any]:
        """Return the values set explicitly, in the stored form. An omitted field inherits."""
        return self.model_dump(exclude_unset=True)


FIELDS: tuple[str, ...] = tuple(policy_fields.FIELDS)
BUILT_IN: dict[str, Any] = PolicyFields().model_dump()


@dataclass(frozen=True, slots=True)
class Effective:
    """The effective values, and the level each comes from. `via` names the level of a model override."""

    values: dict[str, Any]
    origin: dict[str, str]
    via: dict[str, str]


def effective_values(chain: Sequence[Values], model: str | None = None) -> dict[str, Any]:
    """Return the effective values of levels, outermost first.

    A model's values take precedence over all general ones.
    """
    values = dict(BUILT_IN)
    for level in chain:
        values.update(level)
    values.pop("models", None)
    if model is not None:
        for level in chain:
            values.update(level.get("models", {}).get(model, {}))
    return values


def effective(chain: Sequence[Values], model: str | None = None) -> Effective:
    origin = dict.fromkeys(FIELDS, LEVELS[0])
    via: dict[str, str] = {}
    for name, level in zip(LEVELS, chain, strict=False):
        origin.update({field: name for field in level if field != "models"})
    for name, level in zip(LEVELS, chain, strict=False):
        for field in level.get("models", {}).get(model, {}) if model is not None else ():
            origin[field], via[field] = "model", name
    return Effective(effective_values(chain, model), origin, via)


def models_named(chain: Sequence[Values]) -> list[str]:
    return sorted({model for level in chain for model in level.get("models", {})})


def models_naming(chain: Sequence[Values], fields: AbstractSet[str]) -> list[str]:
    """Return the models for which a level sets one of these fields. All others have the general values."""
    return sorted(
        {
            model
            for level in chain
            for model, model_values in level.get("models", NOTHING).items()
            if not fields.isdisjoint(model_values)
        }
    )


def effective_document(chain: Sequence[Values]) -> dict[str, Any]:
    """Return the effective values for every model, which agents apply and acknowledge by hash."""
    document = effective_values(chain)
    models = {model: effective_values(chain, model) for model in models_named(chain)}
    return {**document, "models": models} if models else document


def effective_hash(chain: Sequence[Values], model: str | None = None) -> str:
    return policy_hash(effective_document(chain) if model is None else effective_values(chain, model))


def contradictions(chain: Sequence[Values]) -> Iterator[FieldProblem]:
    """Yield effective values that contradict each other, in general and for each model with its own values."""
    yield from _contradictions(effective_values(chain), "policy")
    for model in models_naming(chain, JUDGED):
        yield from _contradictions(effective_values(chain, model), f"policy.models.{model}")


def _contradictions(values: Values, where: str) -> Iterator[FieldProblem]:
    for name, cap in CAPS.items():
        value, maximum = values[name], values[cap]
        if maximum is not None and value > maximum:
            is_time = name in SECONDS
            template = "{} s is longer than {}, which is {} s" if is_time else "{:g} is more than {}, which is {:g}"
            yield FieldProblem(f"{where}.{name}", template.format(value, cap, maximum))


@dataclass(frozen=True, slots=True)
class Change:
    """One field before and after, for one model, or (None) for all models without their own values."""

    field: str
    model: str | None
    before: Any
    after: Any
    before_origin: str
    after_origin: str


def changes_between(before: Sequence[Values], after: Sequence[Values]) -> list[Change]:
    """Return the differences between effective values, field by field.

    A model that follows the general or inherited value is not listed again.
    """
    all_changes = (_change(before, after, field, model) for field, model in _said_otherwise(before, after))
    return [change for change in all_changes if change.before != change.after]


def _said_otherwise(before: Sequence[Values], after: Sequence[Values]) -> Iterator[tuple[str, str | None]]:
    """Yield the fields and models whose explicit values differ. Only these can differ in effect, which saves work."""
    levels = [(old, new) for old, new in zip_longest(before, after, fillvalue=NOTHING) if old != new]
    for model in (None, *models_named([level for pair in levels for level in pair])):
        pairs = [(_said(old, model), _said(new, model)) for old, new in levels]
        for field in FIELDS:
            if any(old.get(field, NOTHING) != new.get(field, NOTHING) for old, new in pairs):
                yield field, model


def _change(before: Sequence[Values], after: Sequence[Values], field: str, model: str | None) -> Change:
    (old, old_origin), (new, new_origin) = _in_force(before, field, model), _in_force(after, field, model)
    return Change(field, model, old, new, old_origin, new_origin)


def _in_force(chain: Sequence[Values], field: str, model: str | None) -> tuple[Any, str]:
    """Return one field's effective value and origin, equal to those of `effective`."""
    if model is not None:
        for level in reversed(chain):
            if field in (explicit_values := _said(level, model)):
                return explicit_values[field], "model"
    for name, level in reversed([*zip(LEVELS, chain, strict=False)]):
        if field in level:
            return level[field], name
    return BUILT_IN[field], LEVELS[0]


def _said(level: Values, model: str | None) -> Values:
    explicit_values: Values = level if model is None else level.get("models", NOTHING).get(model, NOTHING)
    return explicit_values


@dataclass(frozen=True, slots=True)
class Below:
    """A namespace below a place, with the explicit policies of its organisation and itself.

    `stored` has the same policies as text, if read from the database, where equal policies have equal text.
    """

    organisation_id: int
    organisation: str
    namespace_id: int
    namespace: str
    group_id: int
    organisation_policy: Values
    namespace_policy: Values
    stored: tuple[str, str] | None = None

    @property
    def combination(self) -> Hashable:
        """A key that is equal for equal policies, so that results are computed once per combination."""
        return self.stored or repr((self.organisation_policy, self.namespace_policy))
