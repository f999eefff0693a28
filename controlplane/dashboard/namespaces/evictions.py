"""Who gives way to whom, in words. Pure.

Customers learn what their own traffic took and what fleet pressure did; names of others are for operators alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.analytics.evictions import Pair, Taken
from controlplane.dashboard.frame.charts import bytes_text, share_text

MOST_SHOWN = 10
CAUSES = {"pressure": "the pool was full", "quota": "its own limit"}


@dataclass(frozen=True, slots=True)
class Pressed:
    """Of the blocks that gave way in a full pool: for whose requests, where that was told."""

    own: int
    others: int
    untold: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What left, and by whose doing."""

    word: str
    blocks: str
    meaning: str


@dataclass(frozen=True, slots=True)
class PairRow:
    """`percent` of all that the table is of."""

    name: str
    note: str
    blocks: str
    size: str
    share: str
    percent: int
    cause: str
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Pairs:
    title: str
    rows: tuple[PairRow, ...]


def pressed(blocks_left: Mapping[str, int], told: Taken) -> Pressed:
    """Never more than left: what was counted by the minute and what is told in pairs begin at different moments."""
    evicted = blocks_left["evicted"]
    own = min(evicted, told.own_pressed_blocks)
    others = min(evicted - own, told.others_blocks)
    return Pressed(own, others, evicted - own - others)


def losses(blocks_left: Mapping[str, int], told: Taken, *, whose: str) -> list[Loss]:
    """`whose`: "your" to its own people, "its" to others."""
    found = pressed(blocks_left, told)
    own = blocks_left["quota"] + found.own
    rows = [
        ("By fleet pressure", found.others, "the memory that everybody shares was full, and others needed it"),
        (f"By {whose} own traffic", own, f"{whose} own requests needed the room, or it had reached its own limit"),
        ("In a full pool", found.untold, "for whom is not told"),
        ("By its time to live", blocks_left["expired"], "nobody used it again in time"),
        ("By a purge", blocks_left["purged"], "somebody purged it"),
    ]
    return [Loss(word, f"{number:,}", meaning) for word, number, meaning in rows if number or word != "In a full pool"]


def title(blocks_left: Mapping[str, int], told: Taken, *, slug: str, window: str, whose: str) -> str:
    found = pressed(blocks_left, told)
    ways = (
        (found.others, "to fleet pressure"),
        (blocks_left["quota"] + found.own, f"to {whose} own traffic"),
        (found.untold, "in a full pool"),
    )
    parts = [f"{_blocks(number)} gave way {by}" for number, by in ways if number]
    if not parts:
        return f"Nothing of {slug} had to give way in {window}"
    return f"{' and '.join(parts)} in {window}"


def _blocks(number: int) -> str:
    return f"{number:,} block{'' if number == 1 else 's'}"


# Pairs, for operators


def evicted_by(found: Sequence[Pair], *, slug: str, window: str) -> Pairs:
    """Who took from it: others, and itself."""
    total = sum(one.blocks for one in found)
    rows = tuple(_row(one, one.by, total, is_own=one.by_id == one.victim_id) for one in found[:MOST_SHOWN])
    if not rows:
        return Pairs(f"No agent told that anybody evicted blocks of {slug} in {window}", ())
    most = "Its own traffic" if found[0].by_id == found[0].victim_id else found[0].by
    return Pairs(f"{most} evicted most of {slug}: {_of(found[0], total)}", rows)


def evicts(found: Sequence[Pair], *, slug: str, window: str) -> Pairs:
    total = sum(one.blocks for one in found)
    rows = tuple(_row(one, one.victim, total) for one in found[:MOST_SHOWN])
    if not rows:
        return Pairs(f"{slug} evicted nobody else in {window}", ())
    return Pairs(f"{slug} evicted {found[0].victim} most: {_of(found[0], total)}", rows)


def _of(one: Pair, total: int) -> str:
    return f"{_blocks(one.blocks)}, {share_text(one.blocks, total)} of these"


def _row(one: Pair, name: str, total: int, *, is_own: bool = False) -> PairRow:
    return PairRow(
        name=name,
        note="its own traffic" if is_own else "",
        blocks=f"{one.blocks:,}",
        size=bytes_text(one.bytes),
        share=share_text(one.blocks, total),
        percent=round(100 * one.blocks / total) if total else 0,
        cause=CAUSES[one.cause],
        last_at=one.last_at,
    )


@dataclass(frozen=True, slots=True)
class FleetRow:
    """Who took, which the row names, from `victim`."""

    victim: str
    address: str  # of the victim's page; "" where there is none
    row: PairRow


def fleet_title(found: Sequence[Pair]) -> str:
    if not found:
        return "No namespace evicted another"
    most = found[0]
    return f"{most.by} evicted {most.victim} most: {_blocks(most.blocks)}"


def fleet_rows(found: Sequence[Pair], addresses: Mapping[int, str]) -> list[FleetRow]:
    """`percent` is of the largest pair."""
    largest = max((one.blocks for one in found), default=0)
    return [FleetRow(one.victim, addresses.get(one.victim_id, ""), _row(one, one.by, largest)) for one in found]
