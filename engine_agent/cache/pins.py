"""Pins: named prefixes that stay in the cache, within a budget, with an owner and an end.

A pin protects the resident and future blocks of its chain from eviction and expiry. It loads none: the engine computes
a pinned prefix whose blocks are missing. The size of a namespace's pins, with all their blocks resident, never exceeds
its `pin_share`; when a new policy lowers it, the oldest pins stay active.
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
        """Forget the pinned blocks and their digests."""
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
    """Return which pins the budget covers, the oldest first. A pin that is too large does not stop later ones."""
    covered: set[str] = set()
    for pin in pins:
        if pin.state in ("active", "over_budget") and pin.wanted_bytes <= budget_bytes:
            budget_bytes -= pin.wanted_bytes
            covered.add(pin.pin_id)
    return covered
