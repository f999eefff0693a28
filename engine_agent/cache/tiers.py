"""One tier of memory shared by all namespaces: allocates pages and chooses whose pages to evict when it is full.

The device is the first tier; a host tier may be below it, and a further tier would be another instance. All divide
their memory by the same rules. What happens to a run that loses its pages is decided elsewhere.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from engine_agent.cache.errors import InvalidValue, UnknownFormat
from engine_agent.cache.eviction import ShareHeap, blocks_in_turn, rank_of
from engine_agent.cache.index import TierCopy
from engine_agent.cache.ledger import Cause
from engine_agent.cache.operations import Operation, Zero
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.quota import Account, shares_of
from engine_agent.cache.storage import Storage

STEPS = 1024  # to the pool: of accounts the same steps above their share, the older block is evicted


@dataclass(frozen=True, slots=True)
class Refused:
    """The missing bytes, and whether the pool or the namespace's own limit is the cause. A retry may succeed."""

    reason: Literal["pool", "limit"]
    missing_bytes: int


class Tier:
    def __init__(self, level: int, name: str, storage: Storage, operations: list[Operation]) -> None:
        if storage.capacity_bytes <= 0:
            raise InvalidValue(f"{name} capacity_bytes", storage.capacity_bytes, "a number above 0")
        self.level = level
        self.name = name
        self.storage = storage
        self._operations = operations
        self._step_bytes = max(1, storage.capacity_bytes // STEPS)
        self.evictable_bytes = 0  # of all namespaces, as others see them
        self._heap: ShareHeap[Account] = ShareHeap()
        self._asking: Account | None = None  # ranked outside the heap: all its idle blocks are evictable

    def account(self, namespace: str, serial: int, policy: NamespacePolicy) -> Account:
        shares = shares_of(policy, self.storage.capacity_bytes)
        return Account(namespace, serial, shares, step_bytes=self._step_bytes)

    def pages_in_step(self, kv_format: str) -> int:
        return max(1, self._step_bytes // self.storage.page_bytes(kv_format))

    def changed(self, account: Account, *, got_older: bool = False) -> None:
        """Update the sums. Call this after every change of an account's memory or of its idle part."""
        evictable = account.evictable_bytes
        self.evictable_bytes += evictable - account.listed_evictable
        account.listed_evictable = evictable
        if account is not self._asking:
            self._heap.changed(account, got_older=got_older)

    def has_format(self, kv_format: str) -> bool:
        try:
            return self.storage.page_bytes(kv_format) > 0
        except UnknownFormat:
            return False

    def forget(self, account: Account) -> None:
        """Remove the account of a removed namespace."""
        self._heap.forget(account)

    def refusal(self, account: Account, need_bytes: int, kept_bytes: int = 0) -> Refused | None:
        """Return why `need_bytes` more cannot be taken now, however much is evicted, or None. Evicts nothing.

        `kept_bytes` of its own idle memory are about to be used, so they cannot be evicted.
        """
        own_idle = account.idle_bytes - kept_bytes
        excess_bytes = account.resident_bytes + need_bytes - account.shares.limit_bytes
        if account.shares.is_limited and excess_bytes > own_idle:
            return Refused("limit", excess_bytes - own_idle)
        foreign_evictable_bytes = self.evictable_bytes - account.listed_evictable
        missing_bytes = need_bytes - self.storage.free_bytes - own_idle - foreign_evictable_bytes
        return Refused("pool", missing_bytes) if missing_bytes > 0 else None

    def take(self, account: Account, kv_format: str, pages: int, evict: "Evict") -> list[int] | Refused:
        """Take pages for this account and evict others' pages where the shares allow it.

        A refusal evicts nothing, with one exception: mixed formats, where the freed pages lie among used pages of
        another format.
        """
        if not pages:
            return []
        need_bytes = pages * self.storage.page_bytes(kv_format)
        if refused := self.refusal(account, need_bytes):
            return refused
        self._charge(account, kv_format, need_bytes)
        self.enforce_limit(account, evict)
        if not self._make_room(account, kv_format, pages, evict):
            self._charge(account, kv_format, -need_bytes)
            return Refused("pool", need_bytes)
        return self.storage.take(kv_format, pages)

    def enforce_limit(self, account: Account, evict: "Evict") -> None:
        """Evict an account's own idle blocks until it is within its limit or has no idle block left."""
        while (excess_bytes := account.over_limit_bytes) and (oldest := account.oldest()):
            size = self._page_bytes(oldest)
            evict(self, account, oldest, min(len(oldest.pages), -(-excess_bytes // size)), "quota", account)

    def give_back(self, account: Account, kv_format: str, pages: Sequence[int]) -> None:
        self.storage.give_back(kv_format, pages)
        account.charge(kv_format, -len(pages) * self.storage.page_bytes(kv_format))
        self.changed(account)

    def _page_bytes(self, copy: TierCopy) -> int:
        return self.storage.page_bytes(copy.run.tree.kv_format)

    def _charge(self, account: Account, kv_format: str, size: int) -> None:
        account.charge(kv_format, size)
        account.grain_bytes = max(account.grain_bytes, self.storage.page_bytes(kv_format))
        self.changed(account)

    def _make_room(self, account: Account, kv_format: str, pages: int, evict: "Evict") -> bool:
        """Evict from the account furthest above its share, again and again, until the storage has the pages."""
        missing = self._missing(kv_format, pages)
        if not missing:
            return True
        wanted_page = self.storage.page_bytes(kv_format)
        self._asking = account
        self._heap.forget(account)
        try:
            while missing:
                victim, eviction_limit, runner_up = self._victim(account)
                oldest = victim.oldest() if victim else None
                if victim is None or oldest is None:
                    return False
                size = self._page_bytes(oldest)
                eviction_limit = max(
                    1, min(eviction_limit // size, len(oldest.pages), math.ceil(missing * wanted_page / size))
                )
                blocks = blocks_in_turn(victim, runner_up, page_bytes=size, most=eviction_limit)
                evict(self, victim, oldest, blocks, "pressure", account)
                missing = self._missing(kv_format, pages)
        finally:
            self._asking = None
            self.changed(account)
        return True

    def _missing(self, kv_format: str, pages: int) -> int:
        """Return how many pages the storage lacks after it made room. Queue its moves before later operations."""
        missing = self.storage.missing(kv_format, pages)
        for move in self.storage.take_moves():  # no bytes may stay at the source, where a purge would not find them
            self._operations += (move, Zero(move.tier, move.kv_format, (move.source_page,)))
        return missing

    def _victim(self, account: Account) -> tuple[Account | None, int, Account | None]:
        """Return the account to evict from, at most how many bytes, and the next account."""
        first, second = self._heap.first_two()
        if not account.idle_bytes:
            return first, first.evictable_bytes if first else 0, second
        if first is None:
            return account, account.idle_bytes, None
        own_rank = rank_of(account)
        if own_rank < rank_of(first):
            return account, account.idle_bytes, first
        if second is None or own_rank < rank_of(second):
            second = account
        return first, first.evictable_bytes, second


Evict: TypeAlias = Callable[[Tier, Account, TierCopy, int, Cause, Account], None]
