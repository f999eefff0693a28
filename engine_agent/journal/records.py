"""The journal's records, one when a request's headers are sent and another when it ends, and their line format.

A line is the CRC-32 of what follows in eight hexadecimal digits, a space, and a JSON object in ASCII:

    5f1c0a2e {"sequence":1,"type":"opened","request_id":"…",…}

A member added later has a default and is omitted when it has that value, so that older journals can be read and their
lines are written unchanged. Older readers ignore unknown members. Standard library only.
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
    """An attempt whose headers were sent, with the numbers in headers, usage and metrics. It never contains text."""

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
    key_id: str = ""  # the control plane's id of the API key; empty: no key


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of an attempt. An `Opened` without one after its engine ended was cut off."""

    opened: int  # number of its `Opened`; request ids are chosen by clients and may repeat
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
    """The line is damaged."""


def line_of(entry: Entry) -> bytes:
    text = _encode(entry_document(entry)).encode()
    return b"%08x %b\n" % (crc32(text), text)


def entry_of(line: bytes) -> Entry:
    """Decode a line without its newline. Raise DamagedLine."""
    try:
        if int(line[:8], 16) != crc32(line[9:]):
            raise DamagedLine
        return entry_read(json.loads(line[9:]))
    except (ValueError, KeyError, TypeError) as problem:
        raise DamagedLine from problem


def entry_read(document: Mapping[str, Any]) -> Entry:
    """Decode the document of entry_document. Raise KeyError or TypeError."""
    names, made_of = _TYPES[document["type"]]
    arguments = {name: document[name] if name in document else _LATER[name] for name in names}
    return Entry(document["sequence"], made_of(**arguments))


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return the entry as a JSON object, for the file and for the journal's readers."""
    kind, names, values = _FIELDS[type(entry.record)]
    document = {"sequence": entry.sequence, "type": kind, **dict(zip(names, values(entry.record), strict=True))}
    for name, default in _LATER.items():
        if document.get(name) == default:
            del document[name]
    return document


def first_known(entry: Entry) -> Entry:
    """Return the entry without members added later, as every version reads it."""
    record = entry.record
    return Entry(entry.sequence, replace(record, **_LATER)) if isinstance(record, Opened) else entry


def _names(made_of: type[Opened] | type[Closed]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(made_of))


_encode = json.JSONEncoder(separators=(",", ":"), default=dict).encode
_TYPES: Mapping[str, tuple[tuple[str, ...], type[Opened] | type[Closed]]] = {
    "opened": (_names(Opened), Opened),
    "closed": (_names(Closed), Closed),
}
_LATER: Mapping[str, Any] = {field.name: field.default for field in fields(Opened) if field.default is not MISSING}
_FIELDS = {made_of: (kind, names, attrgetter(*names)) for kind, (names, made_of) in _TYPES.items()}
