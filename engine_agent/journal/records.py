"""What the journal holds: a record when a request's headers leave, another when it ends. As lines, and back.

A line is the CRC-32 of what follows in eight hexadecimal digits, a space, and a JSON object in ASCII:

    5f1c0a2e {"sequence":1,"type":"opened","request_id":"…",…}

A member that came later has a default and is left out where it says no more: so journals of before are read, and their
lines are written as they were. Readers of before ignore what they do not know.

Standard library only.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from operator import attrgetter
from typing import Any, Literal
from zlib import crc32

Kind = Literal["customer", "probe", "pin"]


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt whose headers left, with the numbers that they, the usage and the metrics say. Never text of it."""

    request_id: str
    attempt: int
    kind: Kind
    at: float  # unix seconds
    organisation_id: str
    organisation: str
    namespace_id: str
    namespace: str
    policy_revision: int
    model: str
    kv_dtype: str
    prompt_tokens: int
    cached_tokens: int
    miss_reason: str
    missed: Mapping[str, int]  # tokens, by reason
    key_id: str = ""  # of the API key, as the control plane knows it; empty: without one


@dataclass(frozen=True, slots=True)
class Closed:
    """How it ended. An `Opened` that has none when its engine is gone was cut off with it."""

    opened: int  # the number of its `Opened`: ids of an engine alone are its clients', and may come twice
    request_id: str
    attempt: int
    at: float
    outcome: str
    generated_tokens: int
    ttft_ms: float | None
    duration_ms: float


Record = Opened | Closed


@dataclass(frozen=True, slots=True)
class Entry:
    """A record and its number: 1 is the first of its boot."""

    sequence: int
    record: Record


class DamagedLine(Exception):
    """Bytes that are no line as it was written."""


def line_of(entry: Entry) -> bytes:
    text = _encode(entry_document(entry)).encode()
    return b"%08x %b\n" % (crc32(text), text)


def entry_of(line: bytes) -> Entry:
    """From a line without its end. Raises DamagedLine."""
    try:
        if int(line[:8], 16) != crc32(line[9:]):
            raise DamagedLine
        return entry_read(json.loads(line[9:]))
    except (ValueError, KeyError, TypeError) as problem:
        raise DamagedLine from problem


def entry_read(told: Mapping[str, Any]) -> Entry:
    """From what entry_document makes of it. Raises KeyError, TypeError."""
    names, made_of = _TYPES[told["type"]]
    known = {name: told[name] if name in told else _LATER[name] for name in names}
    return Entry(told["sequence"], made_of(**known))


def entry_document(entry: Entry) -> dict[str, Any]:
    """As the journal's readers get it too."""
    kind, names, values = _FIELDS[type(entry.record)]
    told = {"sequence": entry.sequence, "type": kind, **dict(zip(names, values(entry.record), strict=True))}
    for name, default in _LATER.items():
        if told.get(name) == default:
            del told[name]
    return told


def first_known(entry: Entry) -> Entry:
    """Without what came later: as every version reads it."""
    record = entry.record
    return Entry(entry.sequence, replace(record, **_LATER)) if isinstance(record, Opened) else entry


def _names(made_of: type[Opened] | type[Closed]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(made_of))


_encode = json.JSONEncoder(separators=(",", ":"), default=dict).encode
_TYPES: Mapping[str, tuple[tuple[str, ...], type[Opened] | type[Closed]]] = {
    "opened": (_names(Opened), Opened),
    "closed": (_names(Closed), Closed),
}
_LATER: Mapping[str, Any] = {one.name: one.default for one in fields(Opened) if one.default is not MISSING}
_FIELDS = {made_of: (kind, names, attrgetter(*names)) for kind, (names, made_of) in _TYPES.items()}
