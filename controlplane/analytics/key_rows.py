"""The counts by API key in a report, checked against the report's own rows. Pure.

They are parts of those rows, so checks that a row has passed are not repeated. Keys are never counted beyond the rows,
so all keys together never have more than their namespace.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from controlplane.analytics.columns import ADDED, CUSTOMER_KIND, KEY_ADDED
from controlplane.analytics.rows import Counted, Problem, shown

MEMBERS: Final = ("minute", "namespace", "model", "key", *KEY_ADDED)
_PLACES: Final = tuple(ADDED.index(name) for name in KEY_ADDED)
_COUNTS: Final = slice(MEMBERS.index(KEY_ADDED[0]), None)
KeyOwners = Mapping[str, int]  # organisation by key id


class KeyKey(NamedTuple):
    """The subject of a key's row. With its agent, it identifies a series."""

    organisation: int
    namespace: int
    model: str
    key: str  # empty: requests without a key


class KeyCounted(NamedTuple):
    """A key's counts in a minute. `added` is in the order of KEY_ADDED."""

    key: KeyKey
    minute: int
    added: list[int]


class _Left(NamedTuple):
    organisation: int
    namespace: int
    counts: list[int]  # by KEY_ADDED


class Parts:
    """The parts by key of one report. `_left`: the sums of its customers' rows that no key has claimed yet."""

    def __init__(self, owners: KeyOwners) -> None:
        self._owners = owners
        self._left: dict[tuple[int, str, str], _Left] = {}

    def add(self, row: Counted) -> None:
        key = row.key
        if key.kind != CUSTOMER_KIND:
            return
        row_key = (row.minute, str(key.namespace), key.model)
        remaining = self._left.get(row_key)
        if remaining is None:
            remaining = self._left[row_key] = _Left(key.organisation, key.namespace, [0] * len(_PLACES))
        for index, source in enumerate(_PLACES):
            remaining.counts[index] += row.added[source]

    def take(self, part: Any) -> KeyCounted | Problem:
        """Take a key's part away from what is left and return it, or return what is wrong with it."""
        if type(part) is not list or len(part) != len(MEMBERS):
            return Problem("row", f"must be a list of {', '.join(MEMBERS)}, found {shown(part)}")
        minute, namespace, model, key = part[: _COUNTS.start]
        if not (type(minute) is int and type(namespace) is str and type(model) is str):
            return Problem("minute", "must be a whole number, and namespace and model be text")
        remaining = self._left.get((minute, namespace, model))
        if remaining is None:
            return Problem("minute", "no customers' row of the report is of that minute, namespace and model")
        if key is not None and (type(key) is not str or self._owners.get(key) != remaining.organisation):
            return Problem("key", f"must be a key of the namespace's organisation, found {shown(key)}")
        counts = part[_COUNTS]
        for name, most, count in zip(KEY_ADDED, remaining.counts, counts, strict=True):
            if type(count) is not int or not 0 <= count <= most:
                return Problem(name, f"must be at most the {most} that are left of the rows, found {shown(count)}")
        remaining.counts[:] = [most - count for most, count in zip(remaining.counts, counts, strict=True)]
        return KeyCounted(KeyKey(remaining.organisation, remaining.namespace, model, key or ""), minute, counts)
