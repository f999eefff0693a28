"""Read one JSON object of a model's folder field by field. Every error names the file and the field.

Standard library only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_agent.engine.errors import BadModel
from engine_agent.prompts.files import read_object as read_object


class Fields:
    """The fields of an object. `null` equals a missing field, except for `is_null`."""

    def __init__(self, path: Path, fields: Mapping[str, Any], prefix: str = "") -> None:
        self._path, self._fields, self._prefix = path, fields, prefix

    def has(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def given(self, name: str, default: Any = None) -> Any:
        """Return the value, of any type."""
        value = self._fields.get(name)
        return default if value is None else value

    def is_null(self, name: str) -> bool:
        """Return whether the field is explicitly `null`, where a missing field would mean a default."""
        return name in self._fields and self._fields[name] is None

    def names(self) -> set[str]:
        return set(self._fields)

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.given(name, default)
        if type(value) is not int or value < 1:
            raise self.bad(name, "is missing" if value is None else f"{value!r} is no whole number above 0")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.given(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.bad(name, "is missing" if value is None else f"{value!r} is no number above 0")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.given(name, default)
        if type(value) is not bool:
            raise self.bad(name, f"{value!r} is neither true nor false")
        return value

    def inner(self, name: str) -> "Fields":
        """Return the object with that name, or an empty one."""
        value = self.given(name, {})
        if not isinstance(value, dict):
            raise self.bad(name, f"{value!r} is no JSON object")
        return Fields(self._path, value, f"{self._prefix}{name}.")

    def only(self, name: str, *served: object) -> None:
        """Raise BadModel unless the field is missing or has a supported value."""
        value = self.given(name, served[0])
        if value not in served:
            but = "" if served[0] is None else f", only {served[0]!r}"
            raise self.bad(name, f"{repr(value)[:60]} is not served{but}")

    def bad(self, name: str, problem: str) -> BadModel:
        return BadModel(self._path, self._prefix + name, problem)
