"""JSON with one meaning for every document: no name twice, no number that is none, no half of a character.

Both columns read with it, so it needs the standard library alone. How large and how deep a document may be, and how a
refusal is worded, is for whoever reads.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

# Raw NULs and surrogates do not get past json and UTF-8; only escapes can bring them in.
_RISKY_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SURROGATE = re.compile("[\ud800-\udfff]")
Path = tuple[str | int, ...]


class UnsafeJson(ValueError):
    """The text is JSON, or nearly, but not every reader would read the same. `path` leads to what is wrong."""

    def __init__(self, path: Path, message: str, *, is_name: bool = False) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {message}")
        self.path = path
        self.message = message
        self.is_name = is_name  # of a member, the last of `path`; else its value is wrong


def loads(text: str, *, largest_integer: int | None = None, allows_nul: bool = True) -> Any:
    """Return the value of a document, or raise UnsafeJson, or what json.loads raises."""
    reader = _Reader(largest_integer)
    value = reader.decoder.decode(text)
    if reader.has_faults or _RISKY_ESCAPE.search(text):
        _faults_refuse(value, (), allows_nul)
    return value


def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object that gives no name twice, as json's `object_pairs_hook`. Of two values readers take either."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise UnsafeJson((repeated,), "is given more than once")
    return found


@dataclass(frozen=True, slots=True)
class _Fault:
    """Stands where something was that is refused, until the walk that knows its path finds it."""

    message: str
    key: str | None = None


class _Reader:
    """Builds the values of one document, and remembers whether any of them was faulty."""

    def __init__(self, largest_integer: int | None) -> None:
        self.has_faults = False
        self._largest = largest_integer
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=int if largest_integer is None else self._integer,
            parse_float=self._float,
            parse_constant=self._constant,
        )

    def _fault(self, message: str, key: str | None = None) -> _Fault:
        self.has_faults = True
        return _Fault(message, key)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Fault:
        try:
            return members(pairs)
        except UnsafeJson as problem:
            return self._fault(problem.message, str(problem.path[-1]))

    def _integer(self, digits: str) -> int | _Fault:
        # The length comes first: Python refuses to read, and takes long to read, very long numbers.
        largest = self._largest or 0
        if len(digits) > len(str(-largest)) or abs(number := int(digits)) > largest:
            return self._fault(f"is beyond ±{largest}")
        return number

    def _float(self, digits: str) -> float | _Fault:
        number = float(digits)
        return number if math.isfinite(number) else self._fault("is too large a number")

    def _constant(self, name: str) -> _Fault:
        return self._fault(f"is {name}, which is not JSON")


def _faults_refuse(value: Any, path: Path, allows_nul: bool) -> None:
    if isinstance(value, _Fault):
        raise UnsafeJson(path if value.key is None else (*path, value.key), value.message)
    if isinstance(value, str):
        _text_refuse(value, path, allows_nul, is_name=False)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _faults_refuse(item, (*path, index), allows_nul)
    elif isinstance(value, dict):
        for key, item in value.items():
            _text_refuse(key, (*path, key), allows_nul, is_name=True)
            _faults_refuse(item, (*path, key), allows_nul)


def _text_refuse(text: str, path: Path, allows_nul: bool, *, is_name: bool) -> None:
    if not allows_nul and "\0" in text:
        raise UnsafeJson(path, "contains a NUL character", is_name=is_name)
    if _SURROGATE.search(text):
        raise UnsafeJson(path, "contains half of a surrogate pair", is_name=is_name)
