"""Limits on what an organisation's members may change in their policies. Operators set them. No I/O."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from engine_agent.contracts import policy_fields
from engine_agent.contracts.policy_fields import PolicyField
from kernels.formats import OFFERED
from tenants.errors import FieldProblem
from tenants.policy import FIELDS, KvDtype, Values

STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


class Bound(Protocol):
    def problem(self, value: Any) -> str | None:
        """Return why this value is out of bounds, or None if it is within."""


class Free(BaseModel):
    """Any value."""

    model_config = STRICT

    def problem(self, value: Any) -> str | None:
        return None


class _Range(BaseModel):
    model_config = STRICT

    min: float | None = None
    max: float | None = None

    def problem(self, value: Any) -> str | None:
        if value is None:
            return None if self.max is None else f"null is no value here: at most {self.max:g}"
        if self.min is not None and value < self.min:
            return f"{value:g} is less than {self.min:g}, the least you may choose"
        if self.max is not None and value > self.max:
            return f"{value:g} is more than {self.max:g}, the most you may choose"
        return None

    @model_validator(mode="after")
    def _ordered(self) -> "_Range":
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


class SecondsRange(_Range):
    """Whole seconds from `min` to `max`; a side left out is open."""

    min: Annotated[int, Field(ge=1, le=31_536_000)] | None = None
    max: Annotated[int, Field(ge=1, le=31_536_000)] | None = None


class ShareRange(_Range):
    """A share of each pool from `min` to `max`; a side left out is open."""

    min: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None


class _Choice(BaseModel):
    model_config = STRICT

    allowed: list[str]

    def problem(self, value: Any) -> str | None:
        choices = value if isinstance(value, list) else [value]
        outside = [choice for choice in choices if choice not in self.allowed]
        if not outside:
            return None
        return f"{', '.join(outside)} is not among what you may choose: {', '.join(self.allowed) or 'nothing'}"


class KvDtypes(_Choice):
    """Only what is `allowed`."""

    allowed: Annotated[list[KvDtype], Field(max_length=len(OFFERED))]


def _bound_type(field: PolicyField) -> type[BaseModel]:
    """Return the type of a field's bound. A choice or a number gets its own type, named after the field: TtlModes."""
    called = "".join(part.capitalize() for part in field.name.split("_"))
    match field.kind:
        case "switch":
            return Free
        case "seconds":
            return SecondsRange
        case "share":
            return ShareRange
        case "format" | "formats":
            return KvDtypes
        case "choice":
            values: Any = Literal[field.choices]
            return create_model(f"{called}s", __base__=_Choice, __doc__=KvDtypes.__doc__, allowed=list[values])
    end: Any = Annotated[float, Field(ge=field.minimum, le=field.maximum, allow_inf_nan=False)] | None
    description = f"A {field.label.lower()} from `min` to `max`; a side left out is open."
    return create_model(f"{called}Range", __base__=_Range, __doc__=description, min=(end, None), max=(end, None))


BOUND_TYPES = {name: _bound_type(field) for name, field in policy_fields.FIELDS.items()}
TtlModes, Offloads = BOUND_TYPES["ttl_mode"], BOUND_TYPES["offload"]

if TYPE_CHECKING:  # the fields come from the registry, which type checkers cannot read

    class Bounds(BaseModel):
        def __init__(self, **bounds: BaseModel | None) -> None: ...
        def __getattr__(self, field: str) -> Any: ...

else:
    Bounds = create_model(
        "Bounds",
        __config__=STRICT,
        __doc__="A field left out may be changed by operators only.",
        __module__=__name__,
        **{name: (bound | None, None) for name, bound in BOUND_TYPES.items()},
    )


def _for_members(field: PolicyField) -> BaseModel:
    """Return the default bound for members: the field's whole range, unless the registry restricts it."""
    bound: dict[str, Any] = {"min": field.minimum, "max": field.members_maximum or field.maximum}
    if field.kind == "switch":
        bound = {}
    elif field.kind == "choice":
        bound = {"allowed": list(field.choices)}
    elif field.name in policy_fields.FORMAT_FIELDS:
        bound = {"allowed": list(OFFERED)}
    return BOUND_TYPES[field.name].model_validate(bound)


# Fields that cost others nothing. Only operators assign shares, weight and tiers.
BUILT_IN_BOUNDS = Bounds(
    **{name: _for_members(field) for name, field in policy_fields.FIELDS.items() if field.members_may_change}
)


def bounds_of(stored: dict[str, Any], revision: int) -> Bounds:
    return Bounds.model_validate(stored) if revision else BUILT_IN_BOUNDS


def out_of_bounds(bounds: Bounds, *, before: Values, after: Values) -> Iterator[FieldProblem]:
    """Yield a problem for every changed field of a level that members may not change, or not so far."""
    yield from _out_of_bounds(bounds, before, after, "policy")
    old, new = before.get("models", {}), after.get("models", {})
    for model in sorted({*old, *new}):
        yield from _out_of_bounds(bounds, old.get(model, {}), new.get(model, {}), f"policy.models.{model}")


def _out_of_bounds(bounds: Bounds, before: Values, after: Values, where: str) -> Iterator[FieldProblem]:
    missing = object()
    for field in FIELDS:
        value = after.get(field, missing)
        if value == before.get(field, missing):
            continue
        bound: Bound | None = getattr(bounds, field)
        if bound is None:
            yield FieldProblem(f"{where}.{field}", "only an operator may change this")
        elif value is not missing and (problem := bound.problem(value)):
            yield FieldProblem(f"{where}.{field}", problem)
