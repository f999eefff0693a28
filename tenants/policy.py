"""What a policy may say, how levels combine into what is in force, and where each field came from. Pure."""

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
    KvDtype = Literal[OFFERED]  # to whoever validates or describes, each name of the registry
MODEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$"
ModelName = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]
Values = Mapping[str, Any]

MAX_MODELS = 50
CAPS = {name: field.at_most for name, field in policy_fields.FIELDS.items() if field.at_most is not None}
JUDGED = frozenset((*CAPS, *CAPS.values()))  # together
NOTHING: Values = {}


def _distinct(values: list[KvDtype]) -> list[KvDtype]:
    if len(set(values)) != len(values):
        raise ValueError("names a format twice")
    return values


def _without_negative_zero(value: float) -> float:
    return value + 0.0  # the database has no -0.0, and hashes must agree with what is read back


def _typed(field: PolicyField) -> Any:
    """The field as pydantic checks it."""
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


if TYPE_CHECKING:  # the fields are those of the registry, which no type checker reads

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
        """Only what was given, as it is stored: absence means inherit."""
        return self.model_dump(exclude_unset=True)


FIELDS: tuple[str, ...] = tuple(policy_fields.FIELDS)
BUILT_IN: dict[str, Any] = PolicyFields().model_dump()


@dataclass(frozen=True, slots=True)
class Effective:
    """What is in force, and the level each field comes from; `via` names the level whose model override it was."""

    values: dict[str, Any]
    origin: dict[str, str]
    via: dict[str, str]


def effective_values(chain: Sequence[Values], model: str | None = None) -> dict[str, Any]:
    """What levels, outermost first, add up to. A model's own values come after every level's general ones."""
    found = dict(BUILT_IN)
    for level in chain:
        found.update(level)
    found.pop("models", None)
    if model is not None:
        for level in chain:
            found.update(level.get("models", {}).get(model, {}))
    return found


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
    """Those for which some level says one of these fields: all others have the general values of them."""
    return sorted(
        {
            model
            for level in chain
            for model, said in level.get("models", NOTHING).items()
            if not fields.isdisjoint(said)
        }
    )


def effective_document(chain: Sequence[Values]) -> dict[str, Any]:
    """All that is in force, for every model: what agents hold and acknowledge by its hash."""
    document = effective_values(chain)
    models = {model: effective_values(chain, model) for model in models_named(chain)}
    return {**document, "models": models} if models else document


def effective_hash(chain: Sequence[Values], model: str | None = None) -> str:
    return policy_hash(effective_document(chain) if model is None else effective_values(chain, model))


def contradictions(chain: Sequence[Values]) -> Iterator[FieldProblem]:
    """What cannot be true together in what is in force, in general and for each model with values of its own."""
    yield from _contradictions(effective_values(chain), "policy")
    for model in models_naming(chain, JUDGED):
        yield from _contradictions(effective_values(chain, model), f"policy.models.{model}")


def _contradictions(values: Values, where: str) -> Iterator[FieldProblem]:
    for name, cap in CAPS.items():
        value, most = values[name], values[cap]
        if most is not None and value > most:
            is_time = name in SECONDS
            words = "{} s is longer than {}, which is {} s" if is_time else "{:g} is more than {}, which is {:g}"
            yield FieldProblem(f"{where}.{name}", words.format(value, cap, most))


@dataclass(frozen=True, slots=True)
class Change:
    """One field before and after, for one model or (None) for all that has no values of its own."""

    field: str
    model: str | None
    before: Any
    after: Any
    before_origin: str
    after_origin: str


def changes_between(before: Sequence[Values], after: Sequence[Values]) -> list[Change]:
    """What a person would see differ in force, field by field. A model that follows the general value, or what is
    inherited as before, is not told again."""
    said = (_change(before, after, field, model) for field, model in _said_otherwise(before, after))
    return [one for one in said if one.before != one.after]


def _said_otherwise(before: Sequence[Values], after: Sequence[Values]) -> Iterator[tuple[str, str | None]]:
    """Only these can differ in force: the work is that of what is said anew, not of all that is inherited."""
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
    """One field's value and origin: what `effective` tells of all of them."""
    if model is not None:
        for level in reversed(chain):
            if field in (said := _said(level, model)):
                return said[field], "model"
    for name, level in reversed([*zip(LEVELS, chain, strict=False)]):
        if field in level:
            return level[field], name
    return BUILT_IN[field], LEVELS[0]


def _said(level: Values, model: str | None) -> Values:
    said: Values = level if model is None else level.get("models", NOTHING).get(model, NOTHING)
    return said


@dataclass(frozen=True, slots=True)
class Below:
    """One namespace under a place, and what its levels from there on say. `stored`: the same as the database has it,
    where it was read there: what is equal has one spelling."""

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
        """Equal where the same is said: what follows from it is worked out once, and ten thousand have few."""
        return self.stored or repr((self.organisation_policy, self.namespace_policy))
