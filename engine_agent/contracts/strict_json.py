"""Parse JSON that every reader understands in the same way: no repeated name, no NaN or infinity, no lone surrogate.

Both control plane and data plane use it, so it needs only the standard library. Callers limit the size and depth of
documents and word the refusals.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

# json and UTF-8 reject raw NULs and surrogates; only escapes can bring them in.
_RISKY_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SURROGATE = re.compile("[\ud800-\udfff]")
Path = tuple[str | int, ...]


class UnsafeJson(ValueError):
    """The text is nearly JSON, but readers could disagree on its value. `path` leads to the problem."""

    def __init__(self, path: Path, message: str, *, is_name: bool = False) -> None:
        super().__init__(f"{'.'.join(map(str, path))}: {message}")
        self.path = path
        self.message = message
        self.is_name = is_name  # the last name of `path` is wrong; otherwise its value


def loads(text: str, *, largest_integer: int | None = None, allows_nul: bool = True) -> Any:
    """Return the value of a document. Raise UnsafeJson, or the errors of json.loads."""
    reader = _Reader(largest_integer)
    value = reader.decoder.decode(text)
    if reader.has_faults or _RISKY_ESCAPE.search(text):
        _faults_refuse(value, (), allows_nul)
    return value


def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object as json's `object_pairs_hook`.

    Raise UnsafeJson for a repeated name, whose value would be ambiguous.
    """
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise UnsafeJson((repeated,), "is given more than once")
    return document


@dataclass(frozen=True, slots=True)
class _Fault:
    """A placeholder for a refused value, until the walk that knows its path raises the error."""

    message: str
    key: str | None = None


class _Reader:
    """A decoder of one document that remembers whether any value is faulty."""

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
        # Check the length first: Python is slow with very long numbers, or refuses them.
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
        for index, element in enumerate(value):
            _faults_refuse(element, (*path, index), allows_nul)
    elif isinstance(value, dict):
        for key, element in value.items():
            _text_refuse(key, (*path, key), allows_nul, is_name=True)
            _faults_refuse(element, (*path, key), allows_nul)


def _text_refuse(text: str, path: Path, allows_nul: bool, *, is_name: bool) -> None:
    if not allows_nul and "\0" in text:
        raise UnsafeJson(path, "contains a NUL character", is_name=is_name)
    if _SURROGATE.search(text):
        raise UnsafeJson(path, "contains half of a surrogate pair", is_name=is_name)
