"""What a policy may say, how levels combine into what is in force, and where each field came from. Pure."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from engine_agent.contracts.protocol import policy_hash
from kernels.formats import OFFERED
from tenants.errors import FieldProblem
from tenants.json_schemas import defaults_described

if TYPE_CHECKING:
    KvDtype = str
else:
    KvDtype = Literal[OFFERED]  # to whoever validates or describes, each name of the registry
TtlMode = Literal["sliding", "absolute"]
Offload = Literal["none", "host", "disk"]
MODEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$"
ModelName = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]
Values = Mapping[str, Any]

WEEK_SECONDS = 604_800
YEAR_SECONDS = 31_536_000
MAX_MODELS = 50
LEVELS = ("fleet", "organisation", "namespace")
JUDGED = frozenset({"ttl_seconds", "max_age_seconds", "limit_share", "reserved_share", "pin_share"})  # together
NOTHING: Values = {}


def _distinct(values: list[KvDtype]) -> list[KvDtype]:
    if len(set(values)) != len(values):
        raise ValueError("names a format twice")
    return values


def _without_negative_zero(value: float) -> float:
    return value + 0.0  # the database has no -0.0, and hashes must agree with what is read back


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), AfterValidator(_without_negative_zero)]
Weight = Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)]


def _inheritance_described(schema: dict[str, Any]) -> None:
    defaults_described(schema, "Inherits when left out; the fleet default is {}.")


class PolicyFields(BaseModel):
    """Fields of one level. The defaults are the fleet's until it publishes others; one left out is inherited."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, json_schema_extra=_inheritance_described)

    prefix_caching: bool = Field(default=True, description="Off: never match, never keep.")
    ttl_seconds: int = Field(default=300, ge=1, le=WEEK_SECONDS, description="Seconds a block stays matchable.")
    ttl_mode: TtlMode = Field(default="sliding", description="Whether a hit renews it.")
    max_age_seconds: int | None = Field(
        default=86_400,
        ge=1,
        le=YEAR_SECONDS,
        description="Hard cap on age in seconds, also when sliding; null: no cap.",
    )
    kv_dtype: KvDtype = Field(default="fp8", description="The format keys and values are kept in.")
    request_kv_dtypes: Annotated[list[KvDtype], Field(max_length=len(OFFERED)), AfterValidator(_distinct)] = Field(
        default=["int4"], description="What a request may ask for besides kv_dtype."
    )
    reserved_share: Share = Field(default=0.0, description="Share of each agent's pool that others cannot evict.")
    limit_share: Share = Field(default=1.0, description="Share of each agent's pool it may never exceed.")
    weight: Weight = Field(default=1.0, description="Fair share of what is contended, against others' weights.")
    pin_share: Share = Field(default=0.0, description="How much of each agent's pool its pins may hold.")
    offload: Offload = Field(default="none", description="Where evicted blocks go.")


class Policy(PolicyFields):
    """What one level says: fields, and other values for single models."""

    models: dict[ModelName, PolicyFields] = Field(
        default_factory=dict, max_length=MAX_MODELS, description="Other values for single models."
    )

    def said(self) -> dict[str, Any]:
        """Only what was given, as it is stored: absence means inherit."""
        return self.model_dump(exclude_unset=True)


FIELDS: tuple[str, ...] = tuple(PolicyFields.model_fields)
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
    ttl, max_age, limit = values["ttl_seconds"], values["max_age_seconds"], values["limit_share"]
    if max_age is not None and ttl > max_age:
        yield FieldProblem(f"{where}.ttl_seconds", f"{ttl} s is longer than max_age_seconds, which is {max_age} s")
    for share in ("reserved_share", "pin_share"):
        if values[share] > limit:
            yield FieldProblem(f"{where}.{share}", f"{values[share]:g} is more than limit_share, which is {limit:g}")


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
