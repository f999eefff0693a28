"""Sentences and rows on evictions between namespaces. Pure.

Customers see what their own traffic and fleet pressure evicted; only operators see names of other namespaces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.analytics.evictions import Pair, Taken
from controlplane.dashboard.frame.charts import share_text

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Pressed:
    """A namespace's blocks evicted from a full pool: for its own requests, for others', or unreported."""

    own: int
    others: int
    untold: int


def pressed(blocks_left: Mapping[str, int], reported_blocks: Taken) -> Pressed:
    """Split the evicted blocks by cause, capped at the total, because minutes and pairs start at different moments."""
    evicted = blocks_left["evicted"]
    own_blocks = min(evicted, reported_blocks.own_pressed_blocks)
    other_blocks = min(evicted - own_blocks, reported_blocks.others_blocks)
    return Pressed(own_blocks, other_blocks, evicted - own_blocks - other_blocks)


def losses(blocks_left: Mapping[str, int], reported_blocks: Taken, *, whose: str) -> list[tuple[str, int, str]]:
    """Return the evicted blocks by cause. `whose`: "your" for its members, "its" for others."""
    causes = pressed(blocks_left, reported_blocks)
    own_blocks = blocks_left["quota"] + causes.own
    rows = [
        ("By fleet pressure", causes.others, "the memory that everybody shares was full, and others needed it"),
        (
            f"By {whose} own traffic",
            own_blocks,
            f"{whose} own requests needed the room, or it had reached its own limit",
        ),
        ("In a full pool", causes.untold, "for whom is not told"),
        ("By its time to live", blocks_left["expired"], "nobody used it again in time"),
        ("By a purge", blocks_left["purged"], "somebody purged it"),
    ]
    return [row for row in rows if row[1] or row[0] != "In a full pool"]


def title(blocks_left: Mapping[str, int], reported_blocks: Taken, *, slug: str, window: str, whose: str) -> str:
    causes = pressed(blocks_left, reported_blocks)
    causes_with_words = (
        (causes.others, "to fleet pressure"),
        (blocks_left["quota"] + causes.own, f"to {whose} own traffic"),
        (causes.untold, "in a full pool"),
    )
    parts = [f"{_blocks(blocks)} gave way {cause_text}" for blocks, cause_text in causes_with_words if blocks]
    if not parts:
        return f"Nothing of {slug} had to give way in {window}"
    return f"{' and '.join(parts)} in {window}"


def _blocks(number: int) -> str:
    return f"{number:,} block{'' if number == 1 else 's'}"


# Pairs, for operators


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs with most evictions. `total`: blocks of all pairs."""

    title: str
    rows: Sequence[Pair] = ()
    total: int = 0


def evicted_by(pairs: Sequence[Pair], *, slug: str, window: str) -> Pairs:
    """Return the namespaces that evicted blocks of `slug`, itself included."""
    if not pairs:
        return Pairs(f"No agent told that anybody evicted blocks of {slug} in {window}")
    top_evictor = "Its own traffic" if pairs[0].by_id == pairs[0].victim_id else pairs[0].by
    return _pairs(pairs, f"{top_evictor} evicted most of {slug}")


def evicts(pairs: Sequence[Pair], *, slug: str, window: str) -> Pairs:
    if not pairs:
        return Pairs(f"{slug} evicted nobody else in {window}")
    return _pairs(pairs, f"{slug} evicted {pairs[0].victim} most")


def _pairs(pairs: Sequence[Pair], sentence_start: str) -> Pairs:
    total, top_blocks = sum(pair.blocks for pair in pairs), pairs[0].blocks
    return Pairs(
        f"{sentence_start}: {_blocks(top_blocks)}, {share_text(top_blocks, total)} of these", pairs[:MOST_SHOWN], total
    )


def fleet_title(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return "No namespace evicted another"
    top_pair = pairs[0]
    return f"{top_pair.by} evicted {top_pair.victim} most: {_blocks(top_pair.blocks)}"
