"""The interface to the store of pages: our own `pool.Arena`, a host tier, or vLLM's block pool.

Pages are opaque ints. Other modules decide which namespace may have them, and for how long.
"""

from collections.abc import MutableSequence, Sequence
from typing import Protocol

from engine_agent.cache.operations import Move


class PageOwner(Protocol):
    """An owner whose list is updated when its pages move."""

    @property
    def is_movable(self) -> bool:
        """Return False while a sequence uses the pages: the engine has its block table, so they cannot move."""

    @property
    def pages(self) -> MutableSequence[int]:
        """Return the list of this owner's page ids, each once. The storage rewrites ids in it when it moves pages."""


class Storage(Protocol):
    """Pages of several formats within one budget of bytes."""

    @property
    def capacity_bytes(self) -> int:
        """Return the bytes that pages can use. Shares are relative to this."""

    @property
    def free_bytes(self) -> int:
        """Return an estimate for a quick feasibility test, too high by at most the documented fragmentation."""

    @property
    def used_bytes(self) -> int:
        """Return the bytes of allocated pages."""

    def page_bytes(self, kv_format: str) -> int:
        """Return the size of a page. Raises UnknownFormat."""

    def most_pages(self, kv_format: str) -> int:
        """Return how many pages an otherwise empty storage has. More never fit."""

    def missing(self, kv_format: str, pages: int) -> int:
        """Return how many of `pages` cannot be allocated now, after the storage did what it can. At 0, `take` will
        succeed.

        It may already claim empty slabs and move pages of movable owners (their `pages` are rewritten, the moves wait
        in `take_moves`). So read an owner's pages after this call, not before.
        """

    def take(self, kv_format: str, pages: int) -> list[int]:
        """Return exactly `pages` ids without an owner, so immovable until assigned. `missing` must have returned 0."""

    def give_back(self, kv_format: str, pages: Sequence[int]) -> None:
        """Free pages that are not used any more, and forget their owners."""

    def assign(self, pages: Sequence[int], owner: PageOwner | None) -> None:
        """Set the owner whose list is updated when these pages move. With None they cannot move."""

    def take_moves(self) -> Sequence[Move]:
        """Return the moves since the last call, in order."""

    def check(self) -> list[str]:
        """Return all inconsistencies of the storage's own state."""
