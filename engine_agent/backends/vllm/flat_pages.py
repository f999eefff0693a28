"""vLLM's blocks as a `Storage` for the cache: pages of equal size, in one KV format for the life of the engine.

A format may have several names (`fp8` is stored as `fp8_e4m3`): the cache treats them as separate formats with equal
pages. Pages never move, because the workers know a block's number as soon as it is in a table.
"""

from collections.abc import Collection, Sequence

from engine_agent.cache.errors import UnknownFormat
from engine_agent.cache.operations import Move
from engine_agent.cache.storage import PageOwner


class FlatPages:
    def __init__(self, pages: range, page_bytes: int, names: Collection[str]) -> None:
        """`pages`: the numbers of vLLM's blocks, without its null block."""
        self._page_bytes, self._names = page_bytes, tuple(names)
        self._all = pages
        self._free = list(reversed(pages))

    @property
    def capacity_bytes(self) -> int:
        return len(self._all) * self._page_bytes

    @property
    def free_bytes(self) -> int:
        return len(self._free) * self._page_bytes

    @property
    def used_bytes(self) -> int:
        return self.capacity_bytes - self.free_bytes

    def page_bytes(self, kv_format: str) -> int:
        if kv_format not in self._names:
            raise UnknownFormat(kv_format, known=self._names)
        return self._page_bytes

    def most_pages(self, kv_format: str) -> int:
        self.page_bytes(kv_format)
        return len(self._all)

    def missing(self, kv_format: str, pages: int) -> int:
        return max(0, pages - len(self._free))

    def take(self, kv_format: str, pages: int) -> list[int]:
        assert pages <= len(self._free)
        if not pages:
            return []
        taken_pages = self._free[-pages:]
        del self._free[-pages:]
        taken_pages.reverse()
        return taken_pages

    def give_back(self, kv_format: str, pages: Sequence[int]) -> None:
        self._free.extend(pages)

    def assign(self, pages: Sequence[int], owner: PageOwner | None) -> None:
        """Do nothing, because pages never move."""

    def take_moves(self) -> Sequence[Move]:
        return ()

    def check(self) -> list[str]:
        free = set(self._free)
        twice = len(self._free) - len(free)
        problems = [f"{twice} blocks are free twice"] if twice else []
        if foreign_pages := [page for page in free if page not in self._all]:
            problems.append(f"{len(foreign_pages)} blocks are free that vLLM does not have, such as {foreign_pages[0]}")
        return problems
