"""What the policy needs of whatever keeps the pages: our own `pool.Arena`, a host tier, or vLLM's block pool.

Pages are ints that mean nothing to the policy. Who may have them, and for how long, is decided elsewhere.
"""

from collections.abc import MutableSequence, Sequence
from typing import Protocol

from engine_agent.cache.operations import Move


class PageOwner(Protocol):
    """Who must be told when pages move."""

    @property
    def is_movable(self) -> bool:
        """False while a sequence uses the pages: its block table is out, so they stay where they are."""

    @property
    def pages(self) -> MutableSequence[int]:
        """Has each id assigned to this owner, once. The storage rewrites ids in this very list when it moved pages."""


class Storage(Protocol):
    """Pages of several formats within one budget of bytes."""

    @property
    def capacity_bytes(self) -> int:
        """What shares are shares of: the bytes that pages can use."""

    @property
    def free_bytes(self) -> int:
        """For the quick test of feasibility. Over-estimates at most by the fragmentation the storage states."""

    @property
    def used_bytes(self) -> int:
        """Of pages that are taken."""

    def page_bytes(self, kv_format: str) -> int:
        """Raises UnknownFormat."""

    def most_pages(self, kv_format: str) -> int:
        """How many there could be if nothing else were here. More than that never fits."""

    def missing(self, kv_format: str, pages: int) -> int:
        """How many of `pages` cannot be given now, after whatever the storage can do by itself. 0: `take` will succeed.

        It may do that already: claim empty slabs, and move pages of movable owners (their `pages` are rewritten, the
        moves wait in `take_moves`). So look at an owner's pages after asking, not before.
        """

    def take(self, kv_format: str, pages: int) -> list[int]:
        """Exactly that many ids, owned by nobody, so immovable until assigned. `missing` must have said 0."""

    def give_back(self, kv_format: str, pages: Sequence[int]) -> None:
        """The pages hold nothing any more. Whoever owned them is forgotten."""

    def assign(self, pages: Sequence[int], owner: PageOwner | None) -> None:
        """Say who must be told when these pages move. None: they stay where they are."""

    def take_moves(self) -> Sequence[Move]:
        """What was moved since the last call, in order."""

    def check(self) -> list[str]:
        """What is wrong with its own books; nothing, when they are sound."""
