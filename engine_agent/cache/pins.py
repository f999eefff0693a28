"""Named prefixes that stay: a promise within a budget, with an owner and an end.

A pin protects the blocks of its chain that are resident, and those that come later, from eviction and expiry. It brings
none in: the engine computes a pinned prefix whose blocks are missing. What a namespace's pins would hold when all their
blocks are resident never passes its `pin_share`; when a new policy leaves less, the oldest pins keep theirs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from engine_agent.cache.index import Kinship, Tree
from engine_agent.cache.keys import Digest, Digests

PinState = Literal["active", "over_budget", "disabled", "purged"]


@dataclass(slots=True, eq=False)
class Pin:
    pin_id: str
    namespace: str
    owner: str
    tree: Tree
    digests: Digests = field(repr=False)
    wanted_bytes: int
    ends_at: float = math.inf
    state: PinState = "over_budget"

    wanted_blocks: int = 0

    def __post_init__(self) -> None:
        self.wanted_blocks = len(self.digests)

    def purge(self) -> None:
        """Nothing of what it pinned is kept, not even what it would take to know it."""
        self.state = "purged"
        self.digests = Digests()
        self.tree = Tree(self.namespace, Digest(b""), self.tree.kv_format, Kinship("", b""), self.tree.tiers)
        self.tree.pins = 1


@dataclass(frozen=True, slots=True)
class PinStatus:
    pin_id: str
    owner: str
    state: PinState
    wanted_blocks: int
    resident_blocks: int
    resident_bytes: int
    ends_at: float


def within_budget(pins: Iterable[Pin], budget_bytes: int) -> set[str]:
    """Which pins the budget covers, the oldest first; one that is too large does not stop a smaller one behind it."""
    covered: set[str] = set()
    for pin in pins:
        if pin.state in ("active", "over_budget") and pin.wanted_bytes <= budget_bytes:
            budget_bytes -= pin.wanted_bytes
            covered.add(pin.pin_id)
    return covered
