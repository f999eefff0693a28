"""Answers read off what they show."""

from dataclasses import dataclass

import pytest
from pydantic import AliasPath, Field, ValidationError

from controlplane.api.schemas.base import Given, NoneIfEmpty, SlugOf


class Shown(Given):
    name: str
    group: SlugOf
    agent: NoneIfEmpty
    revision: int = Field(validation_alias=AliasPath("level", "number"))


@dataclass(frozen=True, slots=True)
class Group:
    slug: str


@dataclass(frozen=True, slots=True)
class Level:
    number: int


@dataclass(frozen=True, slots=True)
class Row:
    name: str = "chat"
    agent: str = ""
    group: Group = Group("gpu")
    level: Level = Level(7)
    secret: str = "not shown"


def test_answers_have_the_attributes_of_their_source() -> None:
    shown = Shown.of(Row())
    assert shown.model_dump() == {"name": "chat", "group": "gpu", "agent": None, "revision": 7}
    assert Shown.each([Row(), Row(name="mail", agent="agent-1")])[1].model_dump() == {
        "name": "mail",
        "group": "gpu",
        "agent": "agent-1",
        "revision": 7,
    }


def test_arguments_come_before_attributes() -> None:
    row = Row()
    assert Shown.of(row, name="hidden", level=Level(8)).model_dump() == {
        "name": "hidden",
        "group": "gpu",
        "agent": None,
        "revision": 8,
    }
    assert row.name == "chat"


def test_missing_attributes_are_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="agent") as caught:
        Shown.of(Group("gpu"), name="chat", group="gpu", level=Level(1))
    assert [one["loc"] for one in caught.value.errors()] == [("agent",)]
