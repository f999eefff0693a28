"""What is borne for a while, and why: exceptions.toml."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path

FILE = Path(__file__).with_name("exceptions.toml")


class BadException(ValueError):
    """An exception that does not say what it has to."""


@dataclass(frozen=True, slots=True)
class Borne:
    id: str
    package: str
    reason: str
    until: date


def exceptions_read(path: Path = FILE) -> Sequence[Borne]:
    told = tomllib.loads(path.read_text(encoding="utf-8")).get("exception", [])
    wanted = {one.name for one in fields(Borne)}
    for number, one in enumerate(told, 1):
        if one.keys() != wanted or not isinstance(one["until"], date) or len(str(one["reason"])) < 20:
            raise BadException(f"{path.name}, exception {number}: give {', '.join(sorted(wanted))}, and a real reason")
    return [Borne(**one) for one in told]
