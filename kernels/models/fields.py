"""Single fields of a Hugging Face config: by any of their names, with their type and bounds, or refused by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.errors import InvalidArgument
from kernels.shapes import MOST_HEADS, refused, whole

Names = str | tuple[str, ...]


class Fields:
    """One object of a config. `defaults` are those of the model type's own class; using one leaves a note."""

    def __init__(self, found: Mapping[str, Any], path: str, defaults: Mapping[str, int] | None = None) -> None:
        self._found = found
        self._path = path
        self._defaults = defaults or {}
        self.notes: list[str] = []

    def field(self, name: str) -> str:
        return f"{self._path}.{name}"

    def __contains__(self, name: str) -> bool:
        """Whether it is there, be it null."""
        return name in self._found

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self._found.get(name) is not None

    def raw(self, name: str) -> Any:
        return self._found.get(name)

    def name_of(self, names: Names) -> str | None:
        """The one of these names that is there. Two of them must say the same."""
        there = [name for name in ((names,) if isinstance(names, str) else names) if self.has(name)]
        for other in there[1:]:
            if self._found[other] != self._found[there[0]]:
                raise refused(self.field(other), self._found[other], f"what {there[0]} says of the same")
        return there[0] if there else None

    def maybe(self, names: Names, *, least: int = 1, most: int = MOST_HEADS) -> int | None:
        name = self.name_of(names)
        if name is not None:
            return whole(self.field(name), self._found[name], least=least, most=most)
        return self._default(names if isinstance(names, str) else names[0])

    def _default(self, name: str) -> int | None:
        """The class's own, said in a note. Null is no reason for it: the class would keep that."""
        if name not in self._defaults or name in self._found:
            return None
        default = self._defaults[name]
        said = str(default).lower() if isinstance(default, bool) else str(default)
        note = f"{name} is not in the config: {said}, the model type's default, is used."
        if note not in self.notes:
            self.notes.append(note)
        return default

    def wanted(self, names: Names, *, least: int = 1, most: int = MOST_HEADS) -> int:
        value = self.maybe(names, least=least, most=most)
        if value is None:
            raise self.missing(
                names if isinstance(names, str) else names[0], f"a whole number from {least:,} to {most:,}"
            )
        return value

    def missing(self, name: str, wanted: str) -> InvalidArgument:
        return refused(self.field(name), self._found.get(name), wanted)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._found.get(name)
        if value is None:
            usual = self._default(name)
            return default if usual is None else bool(usual)
        if type(value) is not bool:
            raise refused(self.field(name), value, "true or false")
        return value

    def text(self, name: str) -> str | None:
        value = self._found.get(name)
        if value is not None and not isinstance(value, str):
            raise refused(self.field(name), value, "text")
        return value

    def inner(self, name: str) -> "Fields | None":
        value = self._found.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise refused(self.field(name), value, "an object")
        return Fields(value, self.field(name))

    def items(self, name: str, count: int) -> Sequence[Any] | None:
        """A list with one item for each of so many layers."""
        value = self._found.get(name)
        if value is None:
            return None
        if not isinstance(value, list | str) or len(value) != count:
            raise refused(self.field(name), value, f"one item for each of {count:,} layers")
        return value

    def wholes(self, name: str, *, least: int, most: int) -> list[int] | None:
        """A list of whole numbers, of any length up to so many as there can be layers."""
        value = self._found.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise refused(self.field(name), value, "a list")
        return [whole(f"{self.field(name)}.{at}", one, least=least, most=most) for at, one in enumerate(value)]
