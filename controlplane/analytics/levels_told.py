"""Validates what `levels` reports have besides namespaces' numbers, part by part. Pure; nothing here raises.

Older sidecars report none of it. An invalid part is refused alone.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple
from uuid import UUID

from msgspec import Meta, Struct

from controlplane.analytics.rows import MOST_BYTES, MOST_TOTAL, Problem, Size, Tokens, shown, told_read
from engine_agent.contracts.protocol import CANARIES

OTHERS: Final = "*"  # namespaces that an engine no longer distinguishes
MOST_PAIRS: Final = 4_096  # in a report: as many as an engine distinguishes
MOST_PINS: Final = 1_000
MOST_FORMATS: Final = 16  # of a namespace
MOST_TEXT: Final = 200
MOST_SECONDS: Final = 10.0 * 366 * 86_400
_FORMAT = re.compile(r"[a-z0-9_]{1,16}", re.ASCII)
_STORABLE: Final = r"\A[^\0\ud800-\udfff]*\Z"  # what a database accepts: no NUL, no lone surrogate


class Pair(NamedTuple):
    """A victim, the namespace that evicted its blocks, and the cause. Names as reported."""

    victim: str
    by: str
    cause: str


class Lost(NamedTuple):
    """The losses since the boot. `at`: time of the last one, in unix seconds."""

    blocks: int
    bytes: int
    at: float


class _Eviction(Struct):
    victim: str
    by: str
    cause: Literal["quota", "pressure"]
    blocks: Tokens
    bytes: Annotated[int, Meta(ge=0, le=MOST_TOTAL)]
    seconds_ago: Annotated[float, Meta(ge=0, le=MOST_SECONDS)]


class PinTold(Struct):
    """The state of a pin on one agent. `wanted_tokens` is None if the agent cannot know it yet."""

    id: UUID
    namespace: Annotated[str, Meta(max_length=64, pattern=_STORABLE)]
    state: Annotated[str, Meta(max_length=20, pattern=_STORABLE)]
    is_warming: bool
    wanted_tokens: Size | None
    resident_tokens: Size
    resident_bytes: Size
    problem: Annotated[str, Meta(max_length=MOST_TEXT, pattern=_STORABLE)]


def list_read(field: str, entries: Any, most: int) -> Sequence[Any] | Problem:
    if type(entries) is not list or len(entries) > most:
        return Problem(field, f"must be a list of at most {most}")
    return entries


def pair_read(field: str, reported_eviction: Any, at: float) -> tuple[Pair, Lost] | Problem:
    """Return the pair and its losses, or a problem. `at`: the time of the report."""
    eviction = told_read(field, reported_eviction, _Eviction)
    if isinstance(eviction, Problem):
        return eviction
    for name, namespace in (("victim", eviction.victim), ("by", eviction.by)):
        if not _is_namespace(namespace):
            return Problem(f"{field}.{name}", f"must be a namespace's id or {OTHERS}, found {shown(namespace)}")
    return Pair(eviction.victim, eviction.by, eviction.cause), Lost(
        eviction.blocks, eviction.bytes, at - eviction.seconds_ago
    )


def formats_read(field: str, formats: Any, resident_bytes: int) -> dict[str, int] | Problem:
    """Return the bytes by KV format, or a problem. They must add up to the resident bytes."""
    if type(formats) is not dict or len(formats) > MOST_FORMATS:
        return Problem(field, f"must be an object of at most {MOST_FORMATS} formats")
    for name, size in formats.items():
        if not _FORMAT.fullmatch(name):
            return Problem(field, f"{shown(name)} is no name of a KV format")
        if type(size) is not int or not 0 <= size <= MOST_BYTES:
            return Problem(f"{field}.{name}", f"must be a whole number from 0 to {MOST_BYTES}, found {shown(size)}")
    if sum(formats.values()) != resident_bytes:
        return Problem(
            field, f"must come to the {resident_bytes} bytes that are resident, found {sum(formats.values())}"
        )
    return formats


def pin_read(field: str, reported_pin: Any) -> PinTold | Problem:
    return told_read(field, reported_pin, PinTold)


def _is_namespace(name: str) -> bool:
    return name == OTHERS or name in CANARIES or (len(name) <= 18 and name.isascii() and name.isdecimal())


def namespaces_of(report: Mapping[str, Any]) -> set[Any]:
    """Return the namespaces that the evictions and pins of a `levels` report mention, as unchecked text."""
    namespaces: set[Any] = set()
    for name, keys in (("evictions", ("victim", "by")), ("pins", ("namespace",))):
        rows = report.get(name)
        for row in rows if type(rows) is list else ():
            if type(row) is dict:
                namespaces.update(row[key] for key in keys if type(row.get(key)) is str)
    return namespaces


def pairs_of(report: Mapping[str, Any]) -> set[Pair]:
    """Return the valid eviction pairs of a report."""
    rows = report.get("evictions")
    evictions = [pair_read("", row, 0.0) for row in rows] if type(rows) is list and len(rows) <= MOST_PAIRS else []
    return {eviction[0] for eviction in evictions if not isinstance(eviction, Problem)}
