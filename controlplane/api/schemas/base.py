"""What all bodies have in common."""

from typing import Annotated, Any, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

Item = TypeVar("Item")


def example(**values: Any) -> Any:
    """The example a schema is shown with; the tests check that it fits."""
    return {"examples": [values]}


def _text_only(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be a time as text, such as 2027-01-31T23:59:59Z")
    return value


class Taken(BaseModel):
    """A body we take: unknown members are refused, types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Given(BaseModel):
    """A body we give."""


Moment = Annotated[AwareDatetime, Field(strict=False)]
FutureMoment = Annotated[Moment, BeforeValidator(_text_only)]


class Page(BaseModel, Generic[Item]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[Item]
    next_cursor: str | None
