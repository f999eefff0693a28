"""Rows of the operators' list of organisations: numbers with their basis, and the state as a word. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.dashboard.frame.paging import Asked
from controlplane.dashboard.frame.tiles import LEAST_REQUESTS
from controlplane.dashboard.frame.words import counted
from tenants.listing import Listed

BY_NUMBERS: Final = ("hit", "tokens", "requests")
ORDERS: Final = ("name", "-name", "hit", "-hit", "tokens", "-tokens", "requests", "-requests", "state", "-state")
COLUMNS: Final = (
    ("name", "Organisation"), ("state", "State"), ("", "Namespaces"), ("hit", "Hit rate, 24 h"),
    ("tokens", "Prompt tokens, 24 h"), ("requests", "Requests, 24 h"),
)  # fmt: skip
Counts = Mapping[str, int]
NOTHING: Final[Counts] = {"requests": 0, "prompt_tokens": 0, "cached_tokens": 0}


@dataclass(frozen=True, slots=True)
class Head:
    """A column. `address` sorts by it, or reverses the order if the list is sorted by it."""

    label: str
    address: str
    direction: str  # ascending, descending, or nothing
    is_number: bool


def ordered(rows: Sequence[Listed], order: str, counts: Mapping[int, Counts]) -> list[Listed]:
    """Sort the rows. Those without a number come last either way. `counts` is by organisation."""
    name, is_down = order.removeprefix("-"), order.startswith("-")
    by_name = sorted(rows, key=lambda row: (row.name.casefold(), row.slug))
    if name == "name":
        return by_name[::-1] if is_down else by_name
    keys: dict[str, Callable[[Listed], Any]] = {
        "state": lambda row: row.state,
        "tokens": lambda row: counts.get(row.pk, NOTHING)["prompt_tokens"] or None,
        "requests": lambda row: counts.get(row.pk, NOTHING)["requests"] or None,
        "hit": lambda row: ratio(counts.get(row.pk, NOTHING)),
    }
    key = keys[name]
    numbered = [row for row in by_name if key(row) is not None]
    return [*sorted(numbered, key=key, reverse=is_down), *(row for row in by_name if key(row) is None)]


def ratio(counts: Counts) -> float | None:
    return counts["cached_tokens"] / counts["prompt_tokens"] if counts["prompt_tokens"] else None


def is_little(counts: Counts) -> bool:
    """Return whether there are too few requests for a rate."""
    return 0 < counts["requests"] < LEAST_REQUESTS


def heads(list_request: Asked) -> list[Head]:
    return [_head(name, label, list_request) for name, label in COLUMNS]


def _head(name: str, label: str, list_request: Asked) -> Head:
    is_number = name not in ("name", "state")
    if not name:
        return Head(label, "", "", is_number)
    first, second = (f"-{name}", name) if name in BY_NUMBERS else (name, f"-{name}")
    target = second if list_request.order == first else first
    direction = {name: "ascending", f"-{name}": "descending"}.get(list_request.order, "")
    return Head(label, list_request.query(order=target), direction, is_number)


def headline(total: int, suspended: int, list_request: Asked) -> str:
    if list_request.find:
        return f"{counted(total, 'organisation')} {'fits' if total == 1 else 'fit'} “{list_request.find}”"
    if not total:
        return "There is no organisation yet"
    if not suspended:
        return f"{'The only organisation is' if total == 1 else f'All {total:,} organisations are'} active"
    return (
        f"{total - suspended:,} of {counted(total, 'organisation')} {'is' if total - suspended == 1 else 'are'} active"
    )


def measured(window_seconds: int, covered_seconds: int) -> str:
    """Return what the numbers of the list are based on."""
    if covered_seconds >= window_seconds:
        return "Numbers are of the last 24 h, in all namespaces, out of what engines counted"
    if not covered_seconds:
        return "Nothing has been counted in the last 24 h"
    return f"Numbers are of the {max(1, covered_seconds // 60):,} min of the last 24 h that have been counted so far"
