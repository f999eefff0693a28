"""What all bodies have in common."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

Item = TypeVar("Item")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def example(**values: Any) -> Any:
    """The example a schema is shown with; the tests check that it fits."""
    return {"examples": [values]}


def _moment_only(value: Any) -> Any:
    """Pydantic would take numbers, days and more for times, each in its own way."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("must be a time as text with its zone, such as 2036-01-31T23:59:59Z")
    return value


def _in_utc(value: datetime) -> datetime:
    """As it is stored. At the ends of the calendar another zone's time has no place in ours."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the calendar") from None


class Taken(BaseModel):
    """A body we take: unknown members are refused, types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Given(BaseModel):
    """A body we give."""


class _ShownOnce:
    """Marks a member that is given with the first answer alone."""


OneTimeSecret = Annotated[
    str | None,
    _ShownOnce(),
    Field(description="Shown now and never again: null where the request is repeated with its Idempotency-Key."),
]


def one_time_secrets(body: type[BaseModel] | None) -> tuple[str, ...]:
    """Return the members of a body that are secrets shown once."""
    fields = {} if body is None else body.model_fields
    return tuple(name for name, one in fields.items() if any(isinstance(it, _ShownOnce) for it in one.metadata))


EVERY_MEMBER = ConfigDict(json_schema_serialization_defaults_required=True)  # of an answer: nothing is left out
Moment = Annotated[AwareDatetime, Field(strict=False)]
FutureMoment = Annotated[Moment, BeforeValidator(_moment_only), AfterValidator(_in_utc)]


class Page(BaseModel, Generic[Item]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[Item]
    next_cursor: str | None
