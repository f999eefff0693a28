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
        place = (row.minute, str(key.namespace), key.model)
        left = self._left.get(place)
        if left is None:
            left = self._left[place] = _Left(key.organisation, key.namespace, [0] * len(_PLACES))
        for number, source in enumerate(_PLACES):
            left.counts[number] += row.added[source]

    def take(self, told: Any) -> KeyCounted | Problem:
        """Take a key's part away from what is left and return it, or return what is wrong with it."""
        if type(told) is not list or len(told) != len(MEMBERS):
            return Problem("row", f"must be a list of {', '.join(MEMBERS)}, found {shown(told)}")
        minute, namespace, model, key = told[: _COUNTS.start]
        if not (type(minute) is int and type(namespace) is str and type(model) is str):
            return Problem("minute", "must be a whole number, and namespace and model be text")
        left = self._left.get((minute, namespace, model))
        if left is None:
            return Problem("minute", "no customers' row of the report is of that minute, namespace and model")
        if key is not None and (type(key) is not str or self._owners.get(key) != left.organisation):
            return Problem("key", f"must be a key of the namespace's organisation, found {shown(key)}")
        counts = told[_COUNTS]
        for name, most, count in zip(KEY_ADDED, left.counts, counts, strict=True):
            if type(count) is not int or not 0 <= count <= most:
                return Problem(name, f"must be at most the {most} that are left of the rows, found {shown(count)}")
        left.counts[:] = [most - count for most, count in zip(left.counts, counts, strict=True)]
        return KeyCounted(KeyKey(left.organisation, left.namespace, model, key or ""), minute, counts)
