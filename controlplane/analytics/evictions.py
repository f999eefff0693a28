"""Who evicts whom: what namespaces lost to whose requests over a window, as engines' own ledgers have it. Selectors.

Names of pairs are for operators alone; customers learn what their own traffic took and what others' did, as sums.
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
    """Names as org/namespace."""

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
    """What of a namespace's own went: `pressed` of it in a full pool, the rest at its own limit."""

    own_blocks: int = 0
    own_bytes: int = 0
    others_blocks: int = 0
    others_bytes: int = 0
    own_pressed_blocks: int = 0


def pairs_by_victim(window: Window, victim: int, *, most: int = MOST_PAIRS) -> list[Pair]:
    """Who took most from it comes first."""
    return _pairs("victim_id = %(of)s", window, most, of=victim)


def pairs_by_taker(window: Window, by: int, *, most: int = MOST_PAIRS) -> list[Pair]:
    """From whom it took most comes first; itself is none of them."""
    return _pairs("by_id = %(of)s AND victim_id <> by_id", window, most, of=by)


def pairs_of_fleet(window: Window, *, most: int = MOST_PAIRS) -> list[Pair]:
    """Where one took from another."""
    return _pairs("victim_id <> by_id", window, most)


def taken(window: Window, namespaces: Collection[int]) -> dict[int, Taken]:
    """Of each that lost anything."""
    rows = _rows(
        f"""
        SELECT victim_id, victim_id = by_id, cause, sum(blocks), sum(bytes)
        FROM analytics_eviction WHERE victim_id = ANY(%(of)s) AND {WITHIN} GROUP BY 1, 2, 3
        """,  # noqa: S608  # words of our own
        window,
        of=list(namespaces),
    )
    found: dict[int, dict[tuple[bool, str], tuple[int, int]]] = {}
    for victim, is_own, cause, blocks, size in rows:
        found.setdefault(victim, {})[is_own, cause] = (int(blocks), int(size))
    return {victim: _taken(sums) for victim, sums in found.items()}


def namespaces_there(ids: Collection[int]) -> list[tuple[int, str, str]]:
    """(id, organisation, namespace) of those that are not deleted."""
    rows = Namespace.objects.filter(pk__in=ids, deleted_at=None)
    return list(rows.values_list("pk", "organisation__slug", "slug"))


def together(found: Iterable[Taken]) -> Taken:
    sums = [[getattr(one, name) for name in Taken.__slots__] for one in found]
    return Taken(*map(sum, zip(*sums, strict=True))) if sums else Taken()


def _taken(sums: Mapping[tuple[bool, str], tuple[int, int]]) -> Taken:
    def added(is_own: bool, place: int) -> int:
        return sum(numbers[place] for (own, _), numbers in sums.items() if own == is_own)

    pressed, _ = sums.get((True, "pressure"), (0, 0))
    return Taken(added(True, 0), added(True, 1), added(False, 0), added(False, 1), pressed)


# Whole hours as hours, what is left at the window's beginning as its five minutes: both have every loss.
WITHIN: Final = (
    "((level = %(large)s AND start >= %(hour)s AND start < %(until)s) "
    "OR (level = %(small)s AND start >= %(start)s AND start < least(%(hour)s, %(until)s)))"
)


def _pairs(where: str, window: Window, most: int, **asked: Any) -> list[Pair]:
    rows = _rows(
        f"""
        SELECT victim_id, by_id, cause, sum(blocks), sum(bytes), max(last_at)
        FROM analytics_eviction WHERE {where} AND {WITHIN}
        GROUP BY 1, 2, 3 ORDER BY sum(blocks) DESC, victim_id, by_id, cause LIMIT %(most)s
        """,  # noqa: S608  # words of our own
        window,
        most=most,
        **asked,
    )
    names = _names({number for victim, by, *_ in rows for number in (victim, by)})
    return [
        Pair(victim, by, names[victim], names[by], cause, int(blocks), int(size), at)
        for victim, by, cause, blocks, size, at in rows
    ]


def _rows(sql: str, window: Window, **asked: Any) -> list[Any]:
    places: dict[str, Any] = {
        "small": _SMALL,
        "large": _LARGE,
        "start": floored(window.start, _SMALL),
        "hour": ceiled(window.start, _LARGE),
        "until": window.end + timedelta(minutes=5),  # what was told by a clock that is ahead
    }
    with connection.cursor() as cursor:
        cursor.execute(sql, {**places, **asked})
        return cursor.fetchall()  # type: ignore[no-any-return]


def _names(ids: Collection[int]) -> dict[int, str]:
    rows = Namespace.objects.filter(pk__in=ids).values_list("pk", "organisation__slug", "slug")
    known = {NOBODY_KNOWN: OTHERS_NAME, **dict.fromkeys(CANARY_NUMBERS.values(), CANARY_NAME)}
    return {**dict.fromkeys(ids, DELETED_NAME), **known, **{pk: f"{org}/{ns}" for pk, org, ns in rows}}
