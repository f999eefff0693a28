"""Base classes and field types of all bodies."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

Item = TypeVar("Item")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def example(**values: Any) -> Any:
    """Return the JSON Schema entry for an example; the tests check that the example fits."""
    return {"examples": [values]}


def _moment_only(value: Any) -> Any:
    """Refuse anything but text with a zone: pydantic would accept numbers, dates and more as times."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("must be a time as text with its zone, such as 2036-01-31T23:59:59Z")
    return value


def _in_utc(value: datetime) -> datetime:
    """Convert to UTC, as it is stored. Near the ends of the calendar, this can leave the calendar."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the calendar") from None


class Taken(BaseModel):
    """A body we take: unknown members are refused, types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Extended:
    """An object with additional attributes, or with replacements of its own."""

    def __init__(self, source: Any, extra_fields: Mapping[str, Any]) -> None:
        self._source, self._more = source, extra_fields

    def __getattr__(self, name: str) -> Any:
        return self._more[name] if name in self._more else getattr(self._source, name)


class Given(BaseModel):
    """A body we give: its fields are the attributes of the row or the result that it shows."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, source: Any, **extra_fields: Any) -> Self:
        """Return the body that shows `source`. `extra_fields`: attributes it lacks or that the caller may not read."""
        return cls.model_validate(_Extended(source, extra_fields))

    @classmethod
    def each(cls, sources: Iterable[Any]) -> list[Self]:
        return [cls.model_validate(source) for source in sources]


def _slug(owner: Any) -> Any:
    return getattr(owner, "slug", owner)


SlugOf = Annotated[str, BeforeValidator(_slug)]  # the slug of the object that the attribute refers to
NoneIfEmpty = Annotated[str | None, BeforeValidator(lambda text: text or None)]


class _ShownOnce:
    """Marks a member that only the first answer contains."""


OneTimeSecret = Annotated[
    str | None,
    _ShownOnce(),
    Field(description="Shown now and never again: null where the request is repeated with its Idempotency-Key."),
]


def one_time_secrets(body: type[BaseModel] | None) -> tuple[str, ...]:
    """Return the members of a body that are secrets shown once."""
    fields = {} if body is None else body.model_fields
    return tuple(
        name for name, field in fields.items() if any(isinstance(marker, _ShownOnce) for marker in field.metadata)
    )


EVERY_MEMBER = ConfigDict(json_schema_serialization_defaults_required=True)  # of an answer: no member is omitted
Moment = Annotated[AwareDatetime, Field(strict=False)]
FutureMoment = Annotated[Moment, BeforeValidator(_moment_only), AfterValidator(_in_utc)]


class Page(BaseModel, Generic[Item]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[Item]
    next_cursor: str | None
