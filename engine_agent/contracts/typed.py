"""Check JSON values against msgspec types. It has the types that several messages share, and names the wrong field.

Unknown members are ignored unless the type sets `forbid_unknown_fields`. An integer is accepted as a float, never the
other way round, and true is not a number.
"""

import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from engine_agent.contracts.protocol import MalformedMessage

T = TypeVar("T")
Id = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")]
Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Short = Annotated[str, Meta(max_length=400)] | None
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Instant = Annotated[float, Meta(gt=-1e12, lt=1e12)]  # unix seconds
Object = dict[str, Any]

_PLACE = re.compile(r"(?P<problem>.*) - at (?:`key` in )?`\$(?P<path>[^`]*)`", re.DOTALL)
_NAMED = re.compile(r"Object (?P<how>missing|contains unknown) (?:required )?field `(?P<name>.*)`", re.DOTALL)
_HOW = {"missing": "is missing", "contains unknown": "is not a field we know"}
LONGEST_PROBLEM = 200


def typed(document: Any, type_: type[T], where: str = "", *, root: str = "message") -> T:
    """Convert the value to the type.

    Raise MalformedMessage with the field below `where`, or `root` if no field is known.
    """
    try:
        return msgspec.convert(document, type_)
    except (ValueError, RecursionError) as error:
        field, problem = _blamed(str(error), where)
        raise MalformedMessage(field or root, problem) from None


def _blamed(message: str, where: str) -> tuple[str, str]:
    """Return field and problem from msgspec's message. Names in it may contain any text that was sent."""
    placed = _PLACE.fullmatch(message)
    if placed:
        message = placed["problem"]
        where += re.sub(r"\[(\d+)\]", r".\1", placed["path"]).replace("[...]", ".*")
    if match := _NAMED.fullmatch(message):
        where, message = f"{where}.{ascii(match['name'][:80])[1:-1]}", _HOW[match["how"]]
    problem = re.sub(r"[^ -~]", "?", message.replace("Expected ", "must be ", 1).replace(", got ", ", found ", 1))
    return where.lstrip("."), problem[:LONGEST_PROBLEM]
