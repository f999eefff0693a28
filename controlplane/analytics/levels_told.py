"""What `levels` reports tell besides numbers of namespaces, checked piece by piece. Pure; nothing here raises.

Older sidecars tell none of it. A piece that makes no sense is refused by itself.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from controlplane.analytics.rows import MOST, MOST_BYTES, MOST_TOTAL, Problem, shown
from engine_agent.contracts.protocol import CANARIES

OTHERS: Final = "*"  # namespaces that an engine no longer tells apart
CAUSES: Final = ("quota", "pressure")
MOST_PAIRS: Final = 4_096  # of a report: as many as an engine tells apart
MOST_PINS: Final = 1_000
MOST_FORMATS: Final = 16  # of a namespace
MOST_TEXT: Final = 200
MOST_SECONDS: Final = 10.0 * 366 * 86_400
_FORMAT = re.compile(r"[a-z0-9_]{1,16}", re.ASCII)
_PAIR: Final = frozenset({"victim", "by", "cause", "blocks", "bytes", "seconds_ago"})
_PIN: Final = frozenset(
    {"id", "namespace", "state", "is_warming", "wanted_tokens", "resident_tokens", "resident_bytes", "problem"}
)


class Pair(NamedTuple):
    """Who lost to whom, by the names that are told, and why."""

    victim: str
    by: str
    cause: str


class Lost(NamedTuple):
    """Since the boot. `at`: when last, in unix seconds."""

    blocks: int
    bytes: int
    at: float


class PinTold(NamedTuple):
    """Of one agent. `wanted_tokens` None: it cannot know yet."""

    namespace: str
    state: str
    is_warming: bool
    wanted_tokens: int | None
    resident_tokens: int
    resident_bytes: int
    problem: str


def list_read(field: str, told: Any, most: int) -> Sequence[Any] | Problem:
    if type(told) is not list or len(told) > most:
        return Problem(field, f"must be a list of at most {most}")
    return told


def pair_read(field: str, told: Any, at: float) -> tuple[Pair, Lost] | Problem:
    """`at`: when it was told."""
    if type(told) is not dict or not told.keys() >= _PAIR:
        return Problem(field, f"must be an object of {', '.join(sorted(_PAIR))}")
    for name in ("victim", "by"):
        if not _is_namespace(told[name]):
            return Problem(f"{field}.{name}", f"must be a namespace's id or {OTHERS}, found {shown(told[name])}")
    if told["cause"] not in CAUSES:
        return Problem(f"{field}.cause", f"must be one of {', '.join(CAUSES)}, found {shown(told['cause'])}")
    for name, most in (("blocks", MOST), ("bytes", MOST_TOTAL)):
        if type(told[name]) is not int or not 0 <= told[name] <= most:
            return Problem(f"{field}.{name}", f"must be a whole number from 0 to {most}, found {shown(told[name])}")
    ago = told["seconds_ago"]
    if type(ago) not in (int, float) or not 0 <= ago <= MOST_SECONDS:
        return Problem(f"{field}.seconds_ago", f"must be seconds, found {shown(ago)}")
    return Pair(told["victim"], told["by"], told["cause"]), Lost(told["blocks"], told["bytes"], at - ago)


def formats_read(field: str, told: Any, resident_bytes: int) -> dict[str, int] | Problem:
    """Bytes by KV format, which come to what is resident."""
    if type(told) is not dict or len(told) > MOST_FORMATS:
        return Problem(field, f"must be an object of at most {MOST_FORMATS} formats")
    for name, size in told.items():
        if not _FORMAT.fullmatch(name):
            return Problem(field, f"{shown(name)} is no name of a KV format")
        if type(size) is not int or not 0 <= size <= MOST_BYTES:
            return Problem(f"{field}.{name}", f"must be a whole number from 0 to {MOST_BYTES}, found {shown(size)}")
    if sum(told.values()) != resident_bytes:
        return Problem(field, f"must come to the {resident_bytes} bytes that are resident, found {sum(told.values())}")
    return told


def pin_read(field: str, told: Any) -> tuple[UUID, PinTold] | Problem:
    if type(told) is not dict or not told.keys() >= _PIN:
        return Problem(field, f"must be an object of {', '.join(sorted(_PIN))}")
    pin = _uuid(told["id"])
    if pin is None:
        return Problem(f"{field}.id", f"must be a pin's id, found {shown(told['id'])}")
    for name, most in (("namespace", 64), ("state", 20), ("problem", MOST_TEXT)):
        if not _is_text(told[name], most):
            return Problem(f"{field}.{name}", f"must be text of at most {most} characters, found {shown(told[name])}")
    if type(told["is_warming"]) is not bool:
        return Problem(f"{field}.is_warming", f"must be true or false, found {shown(told['is_warming'])}")
    if problem := _sizes_problem(field, told):
        return problem
    return pin, PinTold(**{name: told[name] for name in PinTold._fields})


def _sizes_problem(field: str, told: Mapping[str, Any]) -> Problem | None:
    sizes = {name: told[name] for name in ("wanted_tokens", "resident_tokens", "resident_bytes")}
    if sizes["wanted_tokens"] is None:
        del sizes["wanted_tokens"]
    for name, size in sizes.items():
        if type(size) is not int or not 0 <= size <= MOST_BYTES:
            return Problem(f"{field}.{name}", f"must be a whole number from 0 to {MOST_BYTES}, found {shown(size)}")
    return None


def _is_text(told: Any, most: int) -> bool:
    """That a database takes."""
    is_short = type(told) is str and len(told) <= most and "\0" not in told
    return is_short and not any("\ud800" <= one <= "\udfff" for one in told)


def _uuid(told: Any) -> UUID | None:
    try:
        return UUID(told) if type(told) is str and len(told) <= 36 else None
    except ValueError:
        return None


def _is_namespace(told: Any) -> bool:
    if type(told) is not str:
        return False
    return told == OTHERS or told in CANARIES or (len(told) <= 18 and told.isascii() and told.isdecimal())


def namespaces_of(told: Mapping[str, Any]) -> set[Any]:
    """Those that a `levels` report speaks of besides those it names, as far as they can be any."""
    found: set[Any] = set()
    for name, keys in (("evictions", ("victim", "by")), ("pins", ("namespace",))):
        rows = told.get(name)
        for one in rows if type(rows) is list else ():
            if type(one) is dict:
                found.update(one[key] for key in keys if type(one.get(key)) is str)
    return found


def pairs_of(told: Mapping[str, Any]) -> set[Pair]:
    """Those that make sense."""
    rows = told.get("evictions")
    read = [pair_read("", one, 0.0) for one in rows] if type(rows) is list and len(rows) <= MOST_PAIRS else []
    return {one[0] for one in read if not isinstance(one, Problem)}
