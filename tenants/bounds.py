"""What an organisation's own people may change in their policies, and how far. Pure; operators set it."""

from collections.abc import Iterator
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kernels.formats import OFFERED
from tenants.errors import FieldProblem
from tenants.policy import FIELDS, WEEK_SECONDS, KvDtype, Offload, TtlMode, Values

STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


class Bound(Protocol):
    def problem(self, value: Any) -> str | None:
        """Why this value is out of bounds; None when it is within."""


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


class WeightRange(_Range):
    """A weight from `min` to `max`; a side left out is open."""

    min: Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)] | None = None
    max: Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)] | None = None


class _Choice(BaseModel):
    model_config = STRICT

    allowed: list[str]

    def problem(self, value: Any) -> str | None:
        asked = value if isinstance(value, list) else [value]
        outside = [one for one in asked if one not in self.allowed]
        if not outside:
            return None
        return f"{', '.join(outside)} is not among what you may choose: {', '.join(self.allowed) or 'nothing'}"


class TtlModes(_Choice):
    """Only what is `allowed`."""

    allowed: list[TtlMode]  # type: ignore[assignment]


class KvDtypes(_Choice):
    """Only what is `allowed`."""

    allowed: Annotated[list[KvDtype], Field(max_length=len(OFFERED))]


class Offloads(_Choice):
    """Only what is `allowed`."""

    allowed: list[Offload]  # type: ignore[assignment]


class Bounds(BaseModel):
    """A field left out may be changed by operators only."""

    model_config = STRICT

    prefix_caching: Free | None = None
    ttl_seconds: SecondsRange | None = None
    ttl_mode: TtlModes | None = None
    max_age_seconds: SecondsRange | None = None
    kv_dtype: KvDtypes | None = None
    request_kv_dtypes: KvDtypes | None = None
    reserved_share: ShareRange | None = None
    limit_share: ShareRange | None = None
    weight: WeightRange | None = None
    pin_share: ShareRange | None = None
    offload: Offloads | None = None


# What costs nobody else anything. Shares, weight and tiers are the operator's to give.
BUILT_IN_BOUNDS = Bounds(
    prefix_caching=Free(),
    ttl_seconds=SecondsRange(min=1, max=WEEK_SECONDS),
    ttl_mode=TtlModes(allowed=["sliding", "absolute"]),
    max_age_seconds=SecondsRange(min=1, max=WEEK_SECONDS),
    kv_dtype=KvDtypes(allowed=list(OFFERED)),
    request_kv_dtypes=KvDtypes(allowed=list(OFFERED)),
)


def bounds_of(stored: dict[str, Any], revision: int) -> Bounds:
    return Bounds.model_validate(stored) if revision else BUILT_IN_BOUNDS


def out_of_bounds(bounds: Bounds, *, before: Values, after: Values) -> Iterator[FieldProblem]:
    """Every field of a level that differs from what it said, and may not, or not so far."""
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
