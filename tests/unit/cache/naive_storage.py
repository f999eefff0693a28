"""A second `Storage`, too simple to be wrong: pages by id and a budget of bytes. No slabs, so nothing is ever unusable.

That the policy works over this as well is the proof that it knows nothing of slabs.
"""

from collections.abc import Mapping, Sequence

from engine_agent.cache.errors import UnknownFormat
from engine_agent.cache.operations import Move
from engine_agent.cache.storage import PageOwner


class NaiveStorage:
    def __init__(self, capacity_bytes: int, page_bytes: Mapping[str, int]) -> None:
        self._capacity_bytes = capacity_bytes
        self._page_bytes = dict(page_bytes)
        self._formats: dict[int, str] = {}
        self._owners: dict[int, PageOwner] = {}
        self._next = 0  # an id is never used twice: who keeps an old one is found out

    @property
    def capacity_bytes(self) -> int:
        return self._capacity_bytes

    @property
    def used_bytes(self) -> int:
        return sum(self._page_bytes[kv_format] for kv_format in self._formats.values())

    @property
    def free_bytes(self) -> int:
        return self._capacity_bytes - self.used_bytes

    def page_bytes(self, kv_format: str) -> int:
        if kv_format not in self._page_bytes:
            raise UnknownFormat(kv_format, known=tuple(self._page_bytes))
        return self._page_bytes[kv_format]

    def most_pages(self, kv_format: str) -> int:
        return self._capacity_bytes // self.page_bytes(kv_format)

    def missing(self, kv_format: str, pages: int) -> int:
        return max(0, pages - self.free_bytes // self.page_bytes(kv_format))

    def take(self, kv_format: str, pages: int) -> list[int]:
        assert self.missing(kv_format, pages) == 0
        taken = list(range(self._next, self._next + pages))
        self._next += pages
        self._formats.update(dict.fromkeys(taken, kv_format))
        return taken

    def give_back(self, kv_format: str, pages: Sequence[int]) -> None:
        for page in pages:
            assert self._formats.pop(page) == kv_format
            self._owners.pop(page, None)

    def assign(self, pages: Sequence[int], owner: PageOwner | None) -> None:
        for page in pages:
            assert page in self._formats, f"page {page} is not in use"
            self._owners.pop(page, None)
            if owner is not None:
                self._owners[page] = owner

    def take_moves(self) -> list[Move]:
        """It never moves anything."""
        return []

    def check(self) -> list[str]:
        lost = [page for page, owner in self._owners.items() if owner.pages.count(page) != 1]
        return [f"page {page} is not in its owner's list, or not once" for page in lost]
