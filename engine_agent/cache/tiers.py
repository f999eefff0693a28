"""One tier of memory shared by all namespaces: taking pages of it, and whose pages go when it is full.

The device is the first tier; below it may be a host tier, and one more would be one more of these. All of them divide
what they have by the same rules. What happens to a run that loses its pages is not decided here.
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

STEPS = 1024  # to the pool: who is above its share by as many steps as another is its equal, and the older block goes


@dataclass(frozen=True, slots=True)
class Refused:
    """What is missing, and whether the pool or the namespace's own limit stands in the way. It may do later."""

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
        self._asking: Account | None = None  # weighed beside the others: its own blocks count to the last

    def account(self, namespace: str, serial: int, policy: NamespacePolicy) -> Account:
        shares = shares_of(policy, self.storage.capacity_bytes)
        return Account(namespace, serial, shares, step_bytes=self._step_bytes)

    def pages_in_step(self, kv_format: str) -> int:
        return max(1, self._step_bytes // self.storage.page_bytes(kv_format))

    def changed(self, account: Account, *, got_older: bool = False) -> None:
        """To be called after every change of what an account holds, or of what of it is idle."""
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
        """Its namespace is no more."""
        self._heap.forget(account)

    def refusal(self, account: Account, need_bytes: int, kept_bytes: int = 0) -> Refused | None:
        """Why `need_bytes` more cannot be had now, however much is evicted. Evicts nothing.

        `kept_bytes` of what of its own is idle are about to be used, so they are not there to be evicted.
        """
        own_idle = account.idle_bytes - kept_bytes
        over = account.resident_bytes + need_bytes - account.shares.limit_bytes
        if account.shares.is_limited and over > own_idle:
            return Refused("limit", over - own_idle)
        others = self.evictable_bytes - account.listed_evictable
        short = need_bytes - self.storage.free_bytes - own_idle - others
        return Refused("pool", short) if short > 0 else None

    def take(self, account: Account, kv_format: str, pages: int, evict: "Evict") -> list[int] | Refused:
        """Pages for this account, others' taken away where that is just. A refusal evicts nothing, but for one case:
        mixed formats, where what was freed lies among pages of another format that are in use.
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
        """Evict what of its own is idle until it is within its limit, or nothing idle is left."""
        while (over := account.over_limit_bytes) and (oldest := account.oldest()):
            size = self._page_bytes(oldest)
            evict(self, account, oldest, min(len(oldest.pages), -(-over // size)), "quota", account)

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
        """Until the storage has the pages: a turn for whoever is furthest above its share, and look again."""
        missing = self._missing(kv_format, pages)
        if not missing:
            return True
        wanted_page = self.storage.page_bytes(kv_format)
        self._asking = account
        self._heap.forget(account)
        try:
            while missing:
                victim, most, runner_up = self._victim(account)
                oldest = victim.oldest() if victim else None
                if victim is None or oldest is None:
                    return False
                size = self._page_bytes(oldest)
                most = max(1, min(most // size, len(oldest.pages), math.ceil(missing * wanted_page / size)))
                blocks = blocks_in_turn(victim, runner_up, page_bytes=size, most=most)
                evict(self, victim, oldest, blocks, "pressure", account)
                missing = self._missing(kv_format, pages)
        finally:
            self._asking = None
            self.changed(account)
        return True

    def _missing(self, kv_format: str, pages: int) -> int:
        """What the storage lacks after it did what it can; what it moved for that comes before all that follows."""
        missing = self.storage.missing(kv_format, pages)
        for move in self.storage.take_moves():  # and nothing of it stays behind, for a purge would not find it
            self._operations += (move, Zero(move.tier, move.kv_format, (move.source_page,)))
        return missing

    def _victim(self, account: Account) -> tuple[Account | None, int, Account | None]:
        """Who gives, at most how many bytes, and who would be next."""
        other, third = self._heap.first_two()
        if not account.idle_bytes:
            return other, other.evictable_bytes if other else 0, third
        if other is None:
            return account, account.idle_bytes, None
        ours = rank_of(account)
        if ours < rank_of(other):
            return account, account.idle_bytes, other
        if third is None or ours < rank_of(third):
            third = account
        return other, other.evictable_bytes, third


Evict: TypeAlias = Callable[[Tier, Account, TierCopy, int, Cause, Account], None]
