"""JSON as strict as we need it: one meaning for every document, nothing PostgreSQL or another parser would trip over.

What the values mean is checked elsewhere. What uses it for django-ninja is in parser.py.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from controlplane.api.errors import BadJson, shown

MAX_DEPTH = 32
LARGEST_INTEGER = 2**63 - 1
_LONGEST_INTEGER = len(str(-LARGEST_INTEGER))
# Possessive, so that no document makes it go back; the closing quote may be missing, json.loads complains about that.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# Raw NULs and surrogates do not get past json.loads and UTF-8; only escapes can bring them in.
_RISKY_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse(body: bytes, *, max_depth: int = MAX_DEPTH) -> object:
    """The one value `body` stands for, or BadJson."""
    text = _decoded(body)
    if _is_too_deep(body, max_depth):
        raise BadJson("body", f"is nested more than {max_depth} levels deep")
    reader = _Reader()
    try:
        value = reader.decoder.decode(text)
    except json.JSONDecodeError as error:
        raise BadJson("body", f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    if reader.has_faults or _RISKY_ESCAPE.search(text):
        _refuse_faults(value, ())
    return value


def _decoded(body: bytes) -> str:
    if not body.strip(b" \t\r\n"):
        raise BadJson("body", "is empty: send a JSON document")
    if body.startswith(b"\xef\xbb\xbf"):
        raise BadJson("body", "begins with a byte order mark: send UTF-8 without one")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadJson("body", f"is not UTF-8 at byte {error.start}") from None


def _is_too_deep(body: bytes, max_depth: int) -> bool:
    """Whether to keep json.loads away from it: its parser calls itself for each level.

    With strings and scalars gone only brackets are left, and each pass takes away one level of them.
    """
    brackets = _STRING.sub(b"", body).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(max_depth):
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or brackets.count(b"[") > max_depth


@dataclass(frozen=True, slots=True)
class _Fault:
    """Stands where something was that we refuse, until the walk that knows its path finds it."""

    message: str
    key: str | None = None


class _Reader:
    """Builds the values of one document, and remembers whether any of them was faulty."""

    def __init__(self) -> None:
        self.has_faults = False
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._integer,
            parse_float=self._float,
            parse_constant=self._constant,
        )

    def _fault(self, message: str, key: str | None = None) -> _Fault:
        self.has_faults = True
        return _Fault(message, key)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Fault:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return self._fault("is given more than once", repeated)

    def _integer(self, digits: str) -> int | _Fault:
        # The length comes first: Python refuses to read, and takes long to read, very long numbers.
        if len(digits) > _LONGEST_INTEGER or abs(number := int(digits)) > LARGEST_INTEGER:
            return self._fault(f"is beyond ±{LARGEST_INTEGER}")
        return number

    def _float(self, digits: str) -> float | _Fault:
        number = float(digits)
        return number if math.isfinite(number) else self._fault("is too large a number")

    def _constant(self, name: str) -> _Fault:
        return self._fault(f"is {name}, which is not JSON")


def _refuse_faults(value: Any, path: tuple[str, ...]) -> None:
    if isinstance(value, _Fault):
        _refuse(value.message, path if value.key is None else (*path, value.key))
    elif isinstance(value, str):
        _refuse_text(value, "", path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_faults(item, (*path, str(index)))
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_text(key, "has a name that ", (*path, key))
            _refuse_faults(item, (*path, key))


def _refuse_text(text: str, opening: str, path: tuple[str, ...]) -> None:
    if "\0" in text:
        _refuse(f"{opening}contains a NUL character", path)
    if _SURROGATE.search(text):
        _refuse(f"{opening}contains half of a surrogate pair", path)


def _refuse(message: str, path: tuple[str, ...]) -> NoReturn:
    raise BadJson(shown(".".join(path)) or "body", message)
