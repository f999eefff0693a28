"""The order of eviction: idle lists order the blocks of one namespace, the share heap orders the namespaces.

In a namespace, the block released longest ago is evicted first, and the deepest block of a chain before those above it.
Between namespaces, the one with the most memory above its reservation, for its weight, is evicted first; among those
that are about equal, again the block released longest ago. Both look at only a few entries, whatever the size of the
pool.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from engine_agent.cache.index import TierCopy


class IdleList:
    """Copies that no sequence uses, oldest first: a ring of links through the copies themselves."""

    __slots__ = ("_ring",)

    def __init__(self) -> None:
        self._ring: TierCopy = _Sentinel()

    def oldest(self) -> TierCopy | None:
        first = self._ring.newer
        return None if first is self._ring else first

    def add_newest(self, copy: TierCopy) -> None:
        link_before(copy, self._ring)

    def add_back(self, copy: TierCopy) -> None:
        """Insert a copy in the order of its run's last release, after a planned use did not happen."""
        newer = self._ring
        while (older := newer.older) is not self._ring and _order(older) > _order(copy):
            newer = older
        link_before(copy, newer)

    def __iter__(self) -> Iterator[TierCopy]:
        copy = self._ring.newer
        while copy is not self._ring:
            yield copy
            copy = copy.newer


def link_before(copy: TierCopy, newer: TierCopy) -> None:
    """Insert the copy as the next older one to `newer`, in the list that `newer` is in."""
    assert not copy.is_listed
    older = newer.older
    copy.older, copy.newer = older, newer
    older.newer = newer.older = copy
    copy.is_listed = True


def unlink(copy: TierCopy) -> None:
    """Remove the copy from the list it is in."""
    assert copy.is_listed
    copy.older.newer, copy.newer.older = copy.newer, copy.older
    copy.older = copy.newer = copy
    copy.is_listed = False


class _Sentinel(TierCopy):
    """Marks the beginning and the end of a ring."""

    __slots__ = ()

    def __init__(self) -> None:
        self.older = self.newer = self
        self.is_listed = True


def _order(copy: TierCopy) -> tuple[int, int]:
    return (copy.run.stamp, -copy.run.start)


class Shareholder(Protocol):
    """An account that the heap can rank."""

    @property
    def serial(self) -> int: ...

    @property
    def evictable_bytes(self) -> int: ...

    def steps(self, less_bytes: int = 0) -> int:
        """Return how many steps the account would be above its reservation, for its weight, with `less_bytes` less."""

    def oldest_stamp(self) -> int:
        """Return when the block that it would lose next was last released."""


S = TypeVar("S", bound=Shareholder)
Rank = tuple[int, int]  # (negative steps, stamp of the next block to evict): the smallest rank is evicted first


def rank_of(holder: Shareholder, less_bytes: int = 0) -> Rank:
    return -holder.steps(less_bytes), holder.oldest_stamp()


class ShareHeap(Generic[S]):
    """Shareholders by rank. A rank that moves forward is pushed again at once; one that falls back is fixed when
    popped.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int]] = []
        self._listed: dict[int, Rank] = {}  # serial → its rank in the heap; other entries are stale
        self._holders: dict[int, S] = {}

    def changed(self, holder: S, *, got_older: bool = False) -> None:
        """Update a shareholder's rank. `got_older`: its next block to evict may be an earlier released one."""
        if holder.evictable_bytes <= 0:
            return
        listed = self._listed.get(holder.serial)
        if listed is None or got_older or -holder.steps() < listed[0]:
            self._push(holder, rank_of(holder))

    def forget(self, holder: S) -> None:
        self._listed.pop(holder.serial, None)
        self._holders.pop(holder.serial, None)

    def first_two(self) -> tuple[S | None, S | None]:
        """Return the shareholder that is evicted from first, and the next one."""
        first = self._first()
        if first is None:
            return None, None
        rank = self._listed.pop(first.serial)
        second = self._first()
        self._push(first, rank)
        return first, second

    def _first(self) -> S | None:
        heap = self._heap
        while heap:
            rank, serial = heap[0]
            if self._listed.get(serial) != rank:
                heapq.heappop(heap)
                continue
            holder = self._holders[serial]
            if holder.evictable_bytes <= 0:
                self.forget(holder)
            elif (present := rank_of(holder)) != rank:
                self._push(holder, present)
            else:
                return holder
        return None

    def _push(self, holder: S, rank: Rank) -> None:
        self._listed[holder.serial] = rank
        self._holders[holder.serial] = holder
        heapq.heappush(self._heap, (rank, holder.serial))
        if len(self._heap) > 2 * len(self._listed) + 64:
            self._heap = [(rank, serial) for serial, rank in self._listed.items()]
            heapq.heapify(self._heap)


def blocks_in_turn(victim: Shareholder, runner_up: Shareholder | None, *, page_bytes: int, most: int) -> int:
    """Return how many blocks of one run, 1 to `most`, the victim loses before the runner-up ranks first."""
    if runner_up is None:
        return most
    bound, stamp = rank_of(runner_up), victim.oldest_stamp()
    low, high = 1, most
    while low < high:  # `low` are certain, `high` may be
        middle = (low + high + 1) // 2
        if (-victim.steps((middle - 1) * page_bytes), stamp) < bound:
            low = middle
        else:
            high = middle - 1
    return low
