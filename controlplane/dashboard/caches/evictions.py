"""Who gives way to whom, in words. Pure.

Agents tell how many blocks each namespace lost and how much it holds, and not whose request took a block's place: so
neighbours are shown, and nobody is accused. Customers learn of their own loss alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controlplane.analytics.neighbours import Neighbour
from controlplane.dashboard.charts import bytes_text, share_text

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Loss:
    """What left, and by whose doing."""

    word: str
    blocks: str
    meaning: str


@dataclass(frozen=True, slots=True)
class NeighbourRow:
    name: str
    is_this: bool
    held: str
    share: str
    evicted: str
    quota: str


LOSSES = {
    "evicted": ("By fleet pressure", "the memory that everybody shares was full"),
    "quota": ("By {whose} own traffic", "the namespace had reached its own limit"),
    "expired": ("By its time to live", "nobody used it again in time"),
    "purged": ("By a purge", "somebody purged it"),
}


def losses(blocks_left: Mapping[str, int], *, whose: str) -> list[Loss]:
    """`whose`: "your" to its own people, "its" to others."""
    return [
        Loss(word.format(whose=whose), f"{blocks_left[name]:,}", meaning) for name, (word, meaning) in LOSSES.items()
    ]


def title(blocks_left: Mapping[str, int], *, slug: str, window: str, whose: str) -> str:
    pressed, own = blocks_left["evicted"], blocks_left["quota"]
    if not pressed and not own:
        return f"Nothing of {slug} had to give way in {window}"
    parts = [
        f"{_blocks(number)} gave way {by}"
        for number, by in ((pressed, "to fleet pressure"), (own, f"to {whose} own traffic"))
        if number
    ]
    return f"{' and '.join(parts)} in {window}"


def _blocks(number: int) -> str:
    return f"{number:,} block{'' if number == 1 else 's'}"


def neighbour_rows(found: Sequence[Neighbour], namespace_id: int) -> list[NeighbourRow]:
    """Who holds most first; this namespace is among them however little it holds."""
    total = sum(one.resident_bytes for one in found)
    most_first = sorted(found, key=lambda one: (-one.resident_bytes, one.name))
    own = [one for one in most_first[MOST_SHOWN:] if one.namespace_id == namespace_id]
    return [_row(one, total, namespace_id) for one in [*most_first[:MOST_SHOWN], *own]]


def _row(one: Neighbour, total: int, namespace_id: int) -> NeighbourRow:
    return NeighbourRow(
        name=one.name,
        is_this=one.namespace_id == namespace_id,
        held=bytes_text(one.resident_bytes),
        share=share_text(one.resident_bytes, total),
        evicted=f"{one.evicted_blocks:,}",
        quota=f"{one.quota_blocks:,}",
    )


def neighbours_sentence(found: Sequence[Neighbour], namespace_id: int) -> str:
    """Who holds what this one would need, and who lost most beside it."""
    others = [one for one in found if one.namespace_id != namespace_id]
    if not others:
        return "It has its agents for itself: no other namespace has held anything there."
    holder = max(others, key=lambda one: (one.resident_bytes, one.name))
    loser = max(others, key=lambda one: (one.evicted_blocks, one.name))
    said = f"On its agents {holder.name} holds most of all others, {bytes_text(holder.resident_bytes)}"
    if loser.evicted_blocks:
        return f"{said}; {loser.name} lost most to pressure, {_blocks(loser.evicted_blocks)}."
    return f"{said}; no other namespace has lost a block to pressure."
