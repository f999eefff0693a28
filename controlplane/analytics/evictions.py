"""Evictions over a window: which namespaces lost blocks to which, from the engines' own counters. Selectors.

Only operators see the names of pairs. Customers see sums: what their own traffic evicted, and what others' did.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection

from controlplane.analytics.displaced import LEVELS, NOBODY_KNOWN
from controlplane.analytics.rows import CANARY_NUMBERS
from controlplane.analytics.windows import Window, ceiled, floored
from tenants.models import Namespace

MOST_PAIRS: Final = 50
OTHERS_NAME: Final = "others"
DELETED_NAME: Final = "a deleted namespace"
CANARY_NAME: Final = "the isolation canary"
_SMALL, _LARGE = LEVELS


@dataclass(frozen=True, slots=True)
class Pair:
    """A victim's losses to the requests of `by`, for one cause. Names are org/namespace."""

    victim_id: int
    by_id: int
    victim: str
    by: str
    cause: str
    blocks: int
    bytes: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """A namespace's losses to its own requests and to others'.

    `own_pressed_blocks`: the part of `own_blocks` that a full pool evicted; its own limit evicted the rest.
    """

    own_blocks: int = 0
    own_bytes: int = 0
    others_blocks: int = 0
    others_bytes: int = 0
    own_pressed_blocks: int = 0


def pairs_by_victim(window: Window, victim: int, *, most: int = MOST_PAIRS) -> list[Pair]:
    """Return the pairs in which this namespace lost blocks, largest loss first."""
    return _pairs("victim_id = %(of)s", window, most, of=victim)


def pairs_by_taker(window: Window, by: int, *, most: int = MOST_PAIRS) -> list[Pair]:
    """Return the pairs in which this namespace's requests evicted others, largest loss first."""
    return _pairs("by_id = %(of)s AND victim_id <> by_id", window, most, of=by)


def pairs_of_fleet(window: Window, *, most: int = MOST_PAIRS) -> list[Pair]:
    """Return the pairs of different namespaces."""
    return _pairs("victim_id <> by_id", window, most)


def taken(window: Window, namespaces: Collection[int]) -> dict[int, Taken]:
    """Return the losses of each namespace that lost anything."""
    rows = _rows(
        f"""
        SELECT victim_id, victim_id = by_id, cause, sum(blocks), sum(bytes)
        FROM analytics_eviction WHERE victim_id = ANY(%(of)s) AND {WITHIN} GROUP BY 1, 2, 3
        """,  # noqa: S608  # names are ours
        window,
        of=list(namespaces),
    )
    sums_by_victim: dict[int, dict[tuple[bool, str], tuple[int, int]]] = {}
    for victim, is_own, cause, blocks, size in rows:
        sums_by_victim.setdefault(victim, {})[is_own, cause] = (int(blocks), int(size))
    return {victim: _taken(sums) for victim, sums in sums_by_victim.items()}


def namespaces_there(ids: Collection[int]) -> list[tuple[int, str, str]]:
    """Return (id, organisation, namespace) of the namespaces that are not deleted."""
    rows = Namespace.objects.filter(pk__in=ids, deleted_at=None)
    return list(rows.values_list("pk", "organisation__slug", "slug"))


def together(losses: Iterable[Taken]) -> Taken:
    sums = [[getattr(loss, name) for name in Taken.__slots__] for loss in losses]
    return Taken(*map(sum, zip(*sums, strict=True))) if sums else Taken()


def _taken(sums: Mapping[tuple[bool, str], tuple[int, int]]) -> Taken:
    def added(is_own: bool, column: int) -> int:
        return sum(numbers[column] for (own, _), numbers in sums.items() if own == is_own)

    pressure_blocks, _ = sums.get((True, "pressure"), (0, 0))
    return Taken(added(True, 0), added(True, 1), added(False, 0), added(False, 1), pressure_blocks)


# Reads whole hours, and five-minute buckets before the first of them. Both levels have every loss.
WITHIN: Final = (
    "((level = %(large)s AND start >= %(hour)s AND start < %(until)s) "
    "OR (level = %(small)s AND start >= %(start)s AND start < least(%(hour)s, %(until)s)))"
)


def _pairs(where: str, window: Window, most: int, **parameters: Any) -> list[Pair]:
    rows = _rows(
        f"""
        SELECT victim_id, by_id, cause, sum(blocks), sum(bytes), max(last_at)
        FROM analytics_eviction WHERE {where} AND {WITHIN}
        GROUP BY 1, 2, 3 ORDER BY sum(blocks) DESC, victim_id, by_id, cause LIMIT %(most)s
        """,  # noqa: S608  # names are ours
        window,
        most=most,
        **parameters,
    )
    names = _names({number for victim, by, *_ in rows for number in (victim, by)})
    return [
        Pair(victim, by, names[victim], names[by], cause, int(blocks), int(size), at)
        for victim, by, cause, blocks, size, at in rows
    ]


def _rows(sql: str, window: Window, **parameters: Any) -> list[Any]:
    window_parameters: dict[str, Any] = {
        "small": _SMALL,
        "large": _LARGE,
        "start": floored(window.start, _SMALL),
        "hour": ceiled(window.start, _LARGE),
        "until": window.end + timedelta(minutes=5),  # includes reports by a clock that is ahead
    }
    with connection.cursor() as cursor:
        cursor.execute(sql, {**window_parameters, **parameters})
        return cursor.fetchall()  # type: ignore[no-any-return]


def _names(ids: Collection[int]) -> dict[int, str]:
    rows = Namespace.objects.filter(pk__in=ids).values_list("pk", "organisation__slug", "slug")
    special_names = {NOBODY_KNOWN: OTHERS_NAME, **dict.fromkeys(CANARY_NUMBERS.values(), CANARY_NAME)}
    return {**dict.fromkeys(ids, DELETED_NAME), **special_names, **{pk: f"{org}/{ns}" for pk, org, ns in rows}}
