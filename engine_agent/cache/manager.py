"""The block manager: block tables over the prefix cache. This is the engine's entry point.

A request becomes a sequence (hashed, no memory), is admitted (leases its matched blocks and gets pages for the rest),
grows and fills while it runs, and is released. Operations on bytes wait in order in `take_operations`; the engine must
carry them out before its next step. One thread, no locks, no waiting.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine_agent.cache import integrity
from engine_agent.cache.books import DEVICE, CacheLimits, Namespace
from engine_agent.cache.errors import InvalidValue, NeverFits, SequenceReleased
from engine_agent.cache.events import EventLog
from engine_agent.cache.index import Chain, Kinship
from engine_agent.cache.keys import ChainIdentity, block_keys, chain_root, packed_tokens, token_array
from engine_agent.cache.ledger import Ledger
from engine_agent.cache.operations import Copy, Operation
from engine_agent.cache.pinning import pinned_bytes, pinned_or_reserved_bytes
from engine_agent.cache.pins import PinStatus
from engine_agent.cache.policy import NamespacePolicy, ttl_cap_checked
from engine_agent.cache.prefixes import PrefixCache, PurgeReceipt
from engine_agent.cache.quota import Account
from engine_agent.cache.reasons import MissReason
from engine_agent.cache.sequences import Sequence
from engine_agent.cache.stats import NamespaceStats, PoolStats, namespace_stats, pool_stats
from engine_agent.cache.storage import Storage
from engine_agent.cache.tiers import Refused


@dataclass(frozen=True, slots=True)
class Admitted:
    """The final result of an admission, for header, usage and all counters. Only operators may see `evicted_by`."""

    cached_tokens: int
    cached_blocks: int
    loaded_blocks: int  # of those, how many are loaded from a lower tier
    miss_reason: MissReason
    evicted_by: str | None  # the namespace whose request evicted the first missed block


@dataclass(frozen=True, slots=True)
class Deferred:
    """The request does not fit now but may later. Nothing was taken and nothing renewed.

    It reveals how much memory others use, so only the engine may see it, not customers.
    """

    reason: str  # "pool", or "limit" where its own namespace is at its limit
    missing_bytes: int


class BlockManager:
    def __init__(
        self,
        device: Storage,
        host: Storage | None = None,
        *,
        clock: Callable[[], float],
        block_tokens: int = 16,
        limits: CacheLimits | None = None,
        boot: str = "",
    ) -> None:
        storages = [device] if host is None else [device, host]
        self.cache = PrefixCache(storages, clock=clock, block_tokens=block_tokens, limits=limits, boot=boot)
        self._books = self.cache.books
        self._sequences: set[Sequence] = set()

    @property
    def events(self) -> EventLog:
        return self._books.events

    @property
    def ledger(self) -> Ledger:
        return self._books.ledger

    # Namespaces

    def set_namespace(self, namespace: str, *, key: bytes, epoch: int, policy: NamespacePolicy) -> PurgeReceipt | None:
        """Register or change a namespace. A higher epoch purges it and returns the receipt."""
        return self.cache.set_namespace(namespace, key=key, epoch=epoch, policy=policy)

    def remove_namespace(self, namespace: str) -> PurgeReceipt:
        return self.cache.remove_namespace(namespace)

    def purge(self, namespace: str, *, key: bytes, epoch: int) -> PurgeReceipt:
        """Purge the namespace: no block from before can match any more."""
        return self.cache.purge(namespace, key=key, epoch=epoch)

    def take_receipts(self) -> list[PurgeReceipt]:
        return self.cache.take_receipts()

    # Requests

    def sequence(
        self,
        namespace: str,
        tokens: Iterable[int],
        *,
        kv_format: str,
        model_revision: str,
        scale_set: str = "",
        salt: bytes = b"",
        ttl_seconds: float | None = None,
    ) -> Sequence:
        """Return a hashed request. It takes no memory before it is admitted."""
        owner = self.cache.namespace(namespace)
        self._books.device.storage.page_bytes(kv_format)
        identity = ChainIdentity(
            epoch=owner.epoch,
            model_revision=model_revision,
            kv_format=kv_format,
            scale_set=scale_set,
            block_tokens=self.cache.block_tokens,
            salt=salt,
        )
        token_ids = token_array(tokens)
        if not token_ids:
            raise InvalidValue("tokens", "none", "at least one token")
        return Sequence(owner, token_ids, identity, cap_seconds=ttl_cap_checked(ttl_seconds))

    def admit(self, sequence: Sequence, *, room_for_tokens: int = 0, counted: bool = True) -> Admitted | Deferred:
        """Lease the matched blocks and take pages for the rest.

        Raises NeverFits, also when the prompt with `room_for_tokens` more can never fit. Not `counted`: left out of the
        namespace's counters and reuse gaps until `count` is called. Use that for a request that was counted before and
        resumes, and for the engine's own requests.
        """
        if sequence.state != "new":
            raise SequenceReleased(sequence.state, verb="admit")
        cache, owner = self.cache, self.cache.namespace(sequence.namespace)
        if owner is not sequence.owner or owner.epoch != sequence.identity.epoch:
            sequence.rekey(owner)
        self.check_fits(sequence, room_for_tokens)
        chain, stop = sequence.chain, sequence.matchable_blocks
        match = cache.match(owner, chain, stop)
        miss = cache.miss(owner, chain, stop, match, lambda root: sequence.digests_under(root, match.depth + 1))
        loaded = sum(min(run.end, match.depth) - run.start for run in match.path if not run.copies[0])
        hold = cache.open(owner, sequence.kv_format, sequence.cap_seconds)
        pages = cache.grab(hold, match, more_pages=sequence.blocks_for() - match.depth)
        if isinstance(pages, Refused):
            return Deferred(pages.reason, pages.missing_bytes)
        sequence.hold, sequence.pages, sequence.state = hold, pages, "admitted"
        sequence.cached_tokens = sequence.filled_tokens = match.depth * cache.block_tokens
        self._sequences.add(sequence)
        if counted:
            self._count(sequence, match.at)
        return Admitted(sequence.cached_tokens, match.depth, loaded, miss.reason, miss.by)

    def count(self, sequence: Sequence) -> None:
        """Count an admitted request in its namespace: once, and before it grows."""
        sequence.held("count")
        self._count(sequence, self.cache.now())

    def check_fits(self, sequence: Sequence, more_tokens: int) -> int:
        """Return the sequence's blocks with `more_tokens` more. Raises NeverFits when they can never be available."""
        if type(more_tokens) is not int or more_tokens < 0:
            raise InvalidValue("room_for_tokens", more_tokens, "a whole number, 0 or more")
        storage, blocks = self._books.device.storage, sequence.blocks_for(more_tokens)
        page_bytes = storage.page_bytes(sequence.kv_format)
        limit_bytes = sequence.owner.accounts[0].shares.limit_bytes
        most_pages = storage.most_pages(sequence.kv_format)
        if blocks > most_pages:
            raise NeverFits("tokens", wanted_bytes=blocks * page_bytes, most_bytes=most_pages * page_bytes)
        if blocks * page_bytes > limit_bytes:
            limit_name = f"the limit of {sequence.namespace}"
            raise NeverFits("tokens", wanted_bytes=blocks * page_bytes, most_bytes=limit_bytes, what=limit_name)
        return blocks

    def is_within_limit(self, sequence: Sequence) -> bool:
        """Return whether a sequence's pages are within its namespace's limit, which may be lowered while it runs."""
        page_bytes = self._books.device.storage.page_bytes(sequence.kv_format)
        return len(sequence.pages) * page_bytes <= sequence.owner.accounts[DEVICE].shares.limit_bytes

    def page_bytes(self, kv_format: str) -> int:
        return self._books.device.storage.page_bytes(kv_format)

    def need_bytes(self, sequence: Sequence) -> int:
        """Return the bytes of a sequence's prompt when nothing of it is cached."""
        return sequence.blocks_for() * self._books.device.storage.page_bytes(sequence.kv_format)

    def room_bytes(self, account: Account) -> int:
        """Return the bytes of the device that a namespace could get now: free, or evictable for it."""
        device = self._books.device
        foreign_evictable_bytes = device.evictable_bytes - account.listed_evictable
        return device.storage.free_bytes + account.idle_bytes + foreign_evictable_bytes

    @property
    def runs_nothing(self) -> bool:
        return not self._sequences

    def is_known(self, owner: Namespace) -> bool:
        return self._books.namespaces.get(owner.namespace) is owner

    def kept_bytes(self) -> int:
        """Return the idle bytes of the device that other namespaces cannot get: pinned or reserved."""
        device = self._books.device
        return sum(
            pinned_or_reserved_bytes(namespace, device)
            for namespace in self._books.namespaces.values()
            if namespace.pins or namespace.accounts[DEVICE].shares.reserved_bytes
        )

    def reachable_bytes(self, owner: Namespace, *, kept_bytes: int | None = None) -> int:
        """Return the bytes a namespace could get once all running sequences have ended.

        That is everything except what others have pinned or reserved and what it has pinned itself. Pass `kept_bytes`
        (the total over all namespaces) to query several namespaces.
        """
        device = self._books.device
        total_kept_bytes = self.kept_bytes() if kept_bytes is None else kept_bytes
        foreign_kept_bytes = total_kept_bytes - pinned_or_reserved_bytes(owner, device)
        return device.storage.capacity_bytes - foreign_kept_bytes - pinned_bytes(owner, device)

    def pinned_hit_bytes(self, sequence: Sequence) -> int:
        """Return how many bytes of a sequence's prompt its own namespace has pinned, as far as it would hit them."""
        tree = sequence.owner.trees.get(sequence.chain.root)
        if tree is None or not tree.pinned_blocks:
            return 0
        stop = min(sequence.matchable_blocks, tree.pinned_blocks)
        depth = self.cache.match(sequence.owner, sequence.chain, stop).depth
        return depth * self._books.device.storage.page_bytes(sequence.kv_format)

    def grow(self, sequence: Sequence, tokens: Iterable[int], *, room_for_tokens: int = 0) -> Deferred | None:
        """Append generated tokens with pages that only this sequence writes to, or do nothing and return Deferred.

        `room_for_tokens`: pages for that many further tokens, which are not known yet.
        """
        hold, new_tokens = sequence.held("grow"), token_array(tokens)
        new_pages = max(0, self.check_fits(sequence, len(new_tokens) + room_for_tokens) - len(sequence.pages))
        shared = self._shared_to_write(sequence)
        needed_pages = new_pages + len(shared)
        pages = self.cache.take(hold, needed_pages) if needed_pages else []  # most tokens go into a page that exists
        if isinstance(pages, Refused):
            return Deferred(pages.reason, pages.missing_bytes)
        for block in shared:
            source, target = sequence.pages[block], pages.pop()
            self._books.operations.append(Copy(sequence.kv_format, source, target))
            sequence.pages[block] = target
            self.cache.let_go_page(hold, source)
        sequence.pages += pages
        sequence.append(new_tokens)
        return None

    def fill(self, sequence: Sequence, upto_tokens: int) -> None:
        """Record that K and V of `tokens[:upto_tokens]` are written: full blocks become matchable."""
        hold = sequence.held("fill")
        if type(upto_tokens) is not int or not sequence.filled_tokens <= upto_tokens <= len(sequence.tokens):
            expected = f"{sequence.filled_tokens} to {len(sequence.tokens)}: what is filled stays so"
            raise InvalidValue("upto_tokens", upto_tokens, expected)
        sequence.filled_tokens = upto_tokens
        upto = upto_tokens // self.cache.block_tokens
        self.cache.fill(hold, sequence.chain, sequence.pages, upto)

    def fork(self, sequence: Sequence) -> Sequence:
        """Return a second sequence with the same past. The first to write to a shared page gets a copy, in `grow`."""
        hold = sequence.held("fork")
        duplicate = sequence.copy(self.cache.fork(hold, sequence.pages))
        self._sequences.add(duplicate)
        return duplicate

    def release(self, sequence: Sequence) -> None:
        """Release a finished, preempted or cancelled sequence: blocks without another lease become idle, private pages
        free.
        """
        hold = sequence.held("release")
        self.cache.let_go(hold, sequence.pages)
        self._sequences.discard(sequence)
        sequence.state, sequence.hold, sequence.pages = "released", None, []

    def forget(self, kv_format: str, page: int) -> list[Sequence]:
        """Remove a block, and all blocks below it, from every tier, because a load returned other content than was
        demoted.

        Returns the sequences whose tables name the page. The blocks they fill are not cached, and the caller must
        release them.
        """
        self.cache.forget(kv_format, page)
        spoilt = [
            candidate for candidate in self._sequences if candidate.kv_format == kv_format and page in candidate.pages
        ]
        for sequence in spoilt:
            sequence.held("forget").keeps = False
        return spoilt

    # Pins

    def pin(
        self,
        pin_id: str,
        namespace: str,
        tokens: Iterable[int],
        *,
        kv_format: str,
        model_revision: str,
        scale_set: str = "",
        salt: bytes = b"",
        owner: str = "",
        expires_at: float | None = None,
    ) -> None:
        """Pin a prefix's full blocks, present and future, until `expires_at` by the manager's clock. Raises
        PinOverBudget.
        """
        known_namespace = self.cache.namespace(namespace)
        width = self.cache.block_tokens
        identity = ChainIdentity(known_namespace.epoch, model_revision, kv_format, scale_set, width, salt)
        root = chain_root(known_namespace.key, identity)
        digests = block_keys(root, packed_tokens(token_array(tokens)), width)
        chain = Chain(root, Kinship(model_revision, salt), kv_format, digests)
        ends_at = math.inf if expires_at is None else expires_at
        self.cache.pin(known_namespace, pin_id, chain, owner=owner, ends_at=ends_at)

    def unpin(self, namespace: str, pin_id: str) -> None:
        self.cache.unpin(self.cache.namespace(namespace), pin_id)

    def pins(self, namespace: str) -> list[PinStatus]:
        return self.cache.pins(self.cache.namespace(namespace))

    # The engine's step

    def tick(self) -> None:
        """Reclaim expired blocks. An engine without other calls should call this at least once a second."""
        self.cache.now()

    def take_operations(self) -> list[Operation]:
        """Return the operations on the pages' bytes, to be carried out in this order before the next step."""
        operations = self._books.operations.copy()
        self._books.operations.clear()
        return operations

    # Queries

    def stats(self, namespace: str) -> NamespaceStats:
        return namespace_stats(self._books, self.cache.namespace(namespace), self.cache.now())

    def pool(self) -> PoolStats:
        return pool_stats(self._books, self._sequences)

    def what_if(
        self,
        namespace: str,
        *,
        ttl_seconds: float | None = None,
        limit_share: float | None = None,
        kv_format: str | None = None,
    ) -> float | None:
        """Return the token hit ratio its own traffic would have had under another TTL or limit, or None if it is too
        early.

        A limit counts blocks of its policy's KV format, or of `kv_format`.
        """
        known_namespace = self.cache.namespace(namespace)
        return self.cache.what_if(
            known_namespace,
            kv_format=kv_format or known_namespace.policy.kv_dtype,
            ttl_seconds=ttl_seconds,
            limit_share=limit_share,
        )

    def check_integrity(self) -> list[str]:
        """Return all inconsistencies of the state. Cheap enough for once a minute in production."""
        return integrity.problems(self._books, self._sequences)

    def _count(self, sequence: Sequence, at: float) -> None:
        assert not sequence.is_counted, "a request is counted once"
        sequence.is_counted = True
        self.cache.count_request(
            sequence.owner,
            sequence.chain.digests[: sequence.matchable_blocks],
            prompt_tokens=len(sequence.tokens),
            cached_tokens=sequence.cached_tokens,
            at=at,
        )

    def _shared_to_write(self, sequence: Sequence) -> list[int]:
        """Return the blocks that a sequence is about to write and that another table also names."""
        first = sequence.filled_tokens // self.cache.block_tokens
        leased_blocks = sequence.hold.depth if sequence.hold else 0
        blocks = range(max(first, leased_blocks), len(sequence.pages))
        return [block for block in blocks if self.cache.is_shared(sequence.pages[block])]
