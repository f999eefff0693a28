"""The cache policy over any storage: which blocks match, who leases them, when they expire, which are evicted, and why
a block was missed.

`PrefixCache` works on digests and pages, without tokens and block tables. `manager.BlockManager` adds those for our own
engine, and another engine with its own block pool can use this class directly. One thread calls it, between two steps
of the engine. Every call first reads the clock and reclaims a bounded number of expired runs; the others cannot match.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from engine_agent.cache.books import DEVICE, Books, CacheLimits, Hold, Namespace, Purge
from engine_agent.cache.departures import Departures
from engine_agent.cache.errors import InvalidValue, PinOverBudget
from engine_agent.cache.expiry import SteadyClock, age_ends, cap_ends, life_ends
from engine_agent.cache.gaps import ReuseGaps
from engine_agent.cache.holds import Holds
from engine_agent.cache.index import Chain, Ghost, Run, Tree
from engine_agent.cache.keys import Digests, key_checked
from engine_agent.cache.ledger import OTHERS
from engine_agent.cache.pinning import Pinning
from engine_agent.cache.pins import Pin, PinStatus
from engine_agent.cache.policy import NamespacePolicy, is_number
from engine_agent.cache.quota import shares_of
from engine_agent.cache.reasons import HIT, Miss, PurgedChain, Rehash, latest, marks_of, was_purged
from engine_agent.cache.storage import Storage
from engine_agent.cache.tiers import Refused


@dataclass(frozen=True, slots=True)
class Match:
    """The longest living prefix of a chain at one moment, not yet leased."""

    at: float
    tree: Tree | None
    path: list[Run]
    depth: int


@dataclass(frozen=True, slots=True)
class PurgeReceipt:
    """The memory that a purge has freed and zeroed in every tier: all matchable blocks, and all blocks that sequences
    in flight used or still wrote.

    It is done when the last of these sequences has released its lease. Pages freed before the purge are not in it:
    nothing can read them, and their next owner overwrites them.
    """

    namespace: str
    epoch: int
    at: float
    blocks: int
    bytes: int
    sequences_left: int

    @property
    def is_done(self) -> bool:
        return self.sequences_left == 0


class PrefixCache:
    def __init__(
        self,
        storages: Sequence[Storage],
        *,
        clock: Callable[[], float],
        block_tokens: int = 16,
        limits: CacheLimits | None = None,
        boot: str = "",
    ) -> None:
        if type(block_tokens) is not int or not 1 <= block_tokens <= 65_536:
            raise InvalidValue("block_tokens", block_tokens, "a whole number from 1 to 65,536")
        self.block_tokens = block_tokens
        self.limits = limits or CacheLimits()
        self.books = Books(storages, limits=self.limits, boot=boot)
        self._departures = Departures(self.books)
        self._pinning = Pinning(self.books, self._departures)
        self._holds = Holds(self.books, self._departures, self._pinning)
        self._clock = SteadyClock(clock, still_readings=self.limits.still_readings)
        self._serial = 0

    # Namespaces

    def set_namespace(self, name: str, *, key: bytes, epoch: int, policy: NamespacePolicy) -> PurgeReceipt | None:
        """Register or change a namespace. A higher epoch purges it. The new policy applies to existing blocks, too."""
        key_checked(key)
        if type(epoch) is not int or epoch < 0:
            raise InvalidValue("epoch", epoch, "a whole number, 0 or more")
        if not isinstance(policy, NamespacePolicy):
            raise InvalidValue("policy", type(policy).__name__, "a NamespacePolicy")
        now = self.now()
        namespace = self.books.namespaces.get(name)
        if namespace is None:
            self._add_namespace(name, key, epoch, policy)
            return None
        if epoch < namespace.epoch:
            raise InvalidValue("epoch", epoch, f"{namespace.epoch} or more: epochs never go back")
        if epoch == namespace.epoch and key != namespace.key:
            raise InvalidValue("key", "another one", f"the key epoch {epoch} already has: a new key needs a new epoch")
        receipt = None
        if epoch > namespace.epoch:
            receipt = self._purge(namespace, key, epoch, now)
        self._change_policy(namespace, policy, now)
        return receipt

    def remove_namespace(self, name: str) -> PurgeReceipt:
        """Purge and remove the namespace. Sequences in flight may finish."""
        now = self.now()
        namespace = self.books.namespace(name)
        receipt = self._purge(namespace, namespace.key, namespace.epoch, now)
        del self.books.namespaces[name]
        namespace.due_at = math.inf
        for tier, account in zip(self.books.tiers, namespace.accounts, strict=True):
            tier.forget(account)
        return receipt

    def namespace(self, name: str) -> Namespace:
        return self.books.namespace(name)

    # Requests

    def open(self, namespace: Namespace, kv_format: str, cap_seconds: float) -> Hold:
        """Return an empty lease for a new sequence."""
        self.books.device.storage.page_bytes(kv_format)
        return Hold(namespace, kv_format, cap_seconds, keeps=namespace.policy.prefix_caching)

    def match(self, namespace: Namespace, chain: Chain, stop: int) -> Match:
        """Return how much of a chain's first `stop` blocks is cached. Use the result before any other call."""
        now = self.now()
        tree = namespace.trees.get(chain.root) if namespace.policy.prefix_caching else None
        if tree is None:
            return Match(now, None, [], 0)
        path, depth = tree.walk(chain.digests, stop, self._alive(namespace, now))
        return Match(now, tree, path, depth)

    def miss(self, namespace: Namespace, chain: Chain, stop: int, match: Match, rehash: Rehash) -> Miss:
        """Return why the first missing block is missing."""
        if not namespace.policy.prefix_caching:
            return Miss("disabled")
        if match.depth >= stop:
            return HIT
        above = match.path[-1] if match.path else match.tree.top if match.tree else None
        child = above.children.get(chain.digests[match.depth]) if above and above.end == match.depth else None
        if child and not child.is_hollow:
            return Miss("expired")  # but not reclaimed yet
        if child and child.ghost:
            return Miss(child.ghost.reason, child.ghost.by)
        if namespace.purged:
            namespace.purged = latest(namespace.purged, most=self.books.ghost_bound, now=match.at)
        if was_purged(namespace.purged, chain, rehash, match.at):
            return Miss("purged")
        is_alive = self._alive(namespace, match.at)
        for related_tree in namespace.kin.get(chain.kin, {}).values():
            if related_tree.kv_format != chain.kv_format:
                digests = rehash(related_tree.root)
                if related_tree.walk(digests, len(digests), is_alive)[1] == len(digests):
                    return Miss("dtype")
        return Miss("cold")

    def grab(self, hold: Hold, match: Match, *, more_pages: int) -> list[int] | Refused:
        """Lease the matched blocks, take further pages, and return all pages in order."""
        return self._holds.grab(hold, match.path, match.depth, more_pages=more_pages, now=match.at)

    def take(self, hold: Hold, pages: int) -> list[int] | Refused:
        return self._holds.take(hold, pages, self.now())

    def fill(self, hold: Hold, chain: Chain, pages: list[int], upto: int) -> None:
        """Make written blocks matchable. `pages` may name other pages of equal content afterwards."""
        self._holds.fill(hold, chain, pages, upto, self.now())

    def fork(self, parent: Hold, pages: Sequence[int]) -> Hold:
        child = Hold(parent.namespace, parent.kv_format, parent.cap_seconds)
        self._holds.fork(parent, child, pages)
        return child

    def count_request(
        self, namespace: Namespace, digests: Digests, *, prompt_tokens: int, cached_tokens: int, at: float
    ) -> None:
        """Count an admitted request, given the digests of its matchable blocks."""
        counters = namespace.counters
        counters.requests += 1
        counters.prompt_tokens += prompt_tokens
        counters.cached_tokens += cached_tokens
        namespace.gaps.observe(digests, prompt_tokens, at)

    def what_if(
        self, namespace: Namespace, *, kv_format: str, ttl_seconds: float | None, limit_share: float | None
    ) -> float | None:
        """Return the namespace's token hit ratio under another TTL, or under LRU eviction at another limit."""
        policy, storage = namespace.policy, self.books.device.storage
        limit_blocks = None
        if limit_share is not None:
            policy = replace(policy, limit_share=limit_share, reserved_share=0.0)
            limit_blocks = int(limit_share * storage.capacity_bytes) // storage.page_bytes(kv_format)
        if ttl_seconds is not None:
            policy = replace(policy, ttl_seconds=ttl_seconds)
        return namespace.gaps.hit_ratio(
            ttl_seconds=policy.ttl_seconds,
            ttl_mode=policy.ttl_mode,
            max_age_seconds=policy.max_age_seconds,
            limit_blocks=limit_blocks,
        )

    def let_go(self, hold: Hold, pages: Sequence[int]) -> None:
        self._holds.let_go(hold, pages, self.now())

    def let_go_page(self, hold: Hold, page: int) -> None:
        """Release one private page of a sequence that continues without it."""
        self._departures.let_go_pages(hold.namespace, hold.kv_format, [page], hold.purge)

    def is_shared(self, page: int) -> bool:
        """Return whether several tables name this page, which is in no index."""
        return self.books.loose.get(page, 1) > 1

    def forget(self, kv_format: str, page: int) -> None:
        """Drop the block in this device page, and all blocks below it, because its content is wrong."""
        now = self.now()
        for namespace in self.books.namespaces.values():
            for tree in namespace.trees.values():
                if tree.kv_format == kv_format and (run := tree.run_with(page, DEVICE)):
                    self._departures.lose(namespace, run, page, now)
                    return

    # Pins

    def pin(self, namespace: Namespace, pin_id: str, chain: Chain, *, owner: str, ends_at: float) -> None:
        now = self.now()
        if not chain.digests:
            raise InvalidValue("pin", pin_id, f"a prefix of at least one full block of {self.block_tokens} tokens")
        if not is_number(ends_at) or not ends_at > now:
            raise InvalidValue("expires_at", ends_at, f"a time after now, {now}")
        if not namespace.policy.prefix_caching:
            raise InvalidValue("pin", pin_id, "a namespace whose prefix_caching is on")
        wanted_bytes = len(chain.digests) * self.books.device.storage.page_bytes(chain.kv_format)
        tree = self._holds.tree_at(namespace, chain)
        pin = Pin(pin_id, namespace.namespace, owner, tree, chain.digests, wanted_bytes, ends_at)
        try:
            self._pinning.add(namespace, pin, now)
        except PinOverBudget:
            self._departures.tidy(namespace, tree.top)
            raise
        self.books.appointments.make(namespace, ends_at)

    def unpin(self, namespace: Namespace, pin_id: str) -> None:
        self._pinning.remove(namespace, pin_id, self.now())

    def pins(self, namespace: Namespace) -> list[PinStatus]:
        self.now()
        return [self._pinning.status(pin) for pin in namespace.pins.values()]

    # Time and purges

    def now(self) -> float:
        """Return the time, after handling everything that was due by then."""
        now = self._clock()
        if self.books.appointments.next_at <= now:
            self._reclaim(now)
        return now

    def empty(self, namespace: Namespace) -> None:
        """Drop all blocks, as if caching were off for a moment. Pins wait for their blocks."""
        now = self.now()
        self._empty(namespace, now)
        if namespace.policy.prefix_caching:
            self._reopen_pins(namespace)
            self._pinning.settle(namespace, now)

    def purge(self, name: str, *, key: bytes, epoch: int) -> PurgeReceipt:
        """Purge the namespace: no block from before can match. Raises InvalidValue unless the epoch is higher."""
        now = self.now()
        namespace = self.books.namespace(name)
        key_checked(key)
        if type(epoch) is not int or epoch <= namespace.epoch:
            raise InvalidValue("epoch", epoch, f"a whole number above {namespace.epoch}")
        return self._purge(namespace, key, epoch, now)

    def take_receipts(self) -> list[PurgeReceipt]:
        """Return the receipts of purges that waited for sequences and are now done, each once."""
        purges = self.books.purges
        done = [purge for purge in purges if not purge.holds_left]
        purges[:] = [purge for purge in purges if purge.holds_left]
        return [_receipt(purge) for purge in done]

    def _add_namespace(self, name: str, key: bytes, epoch: int, policy: NamespacePolicy) -> None:
        if type(name) is not str or name in ("", OTHERS):
            raise InvalidValue("namespace", name, f"a name other than {OTHERS}")
        self._serial += 1
        gaps = ReuseGaps(block_tokens=self.block_tokens, max_samples=self.limits.gap_samples)
        namespace = Namespace(name, self._serial, key, epoch, policy, gaps)
        namespace.accounts = [tier.account(name, self._serial, policy) for tier in self.books.tiers]
        self.books.namespaces[name] = namespace

    def _change_policy(self, namespace: Namespace, policy: NamespacePolicy, now: float) -> None:
        previous_policy, namespace.policy = namespace.policy, policy
        for tier, account in zip(self.books.tiers, namespace.accounts, strict=True):
            account.shares = shares_of(policy, tier.storage.capacity_bytes)
            tier.changed(account)
        if not policy.prefix_caching:
            self._empty(namespace, now)
        elif not previous_policy.prefix_caching:
            self._reopen_pins(namespace)
        if previous_policy.ttl_mode != policy.ttl_mode:
            for run in (run for tree in namespace.trees.values() for run in tree.runs() if not run.is_hollow):
                namespace.by_cap.add(cap_ends(run, policy), run)
        self._appoint(namespace)
        self._reclaim(now)  # first, so that no expired block counts as evicted
        self._pinning.settle(namespace, now)
        self._appoint(namespace)
        self._reclaim(now)

    def _reopen_pins(self, namespace: Namespace) -> None:
        """Let pins wait for their blocks again, because caching is on again."""
        for pin in namespace.pins.values():
            if pin.state == "disabled":
                pin.state = "over_budget"

    def _purge(self, namespace: Namespace, key: bytes, epoch: int, now: float) -> PurgeReceipt:
        purge = Purge(namespace.namespace, epoch, now)
        purged = [self._marks(namespace, tree, now) for tree in namespace.trees.values()]
        self._pinning.purge(namespace)
        for tree in list(namespace.trees.values()):
            self._departures.retire(namespace, tree, purge)
        for hold in namespace.holds:
            hold.keeps = False
            if hold.purge is None:
                hold.purge = purge
                purge.holds_left += 1
        for records in (namespace.ghosts, namespace.by_age, namespace.by_cap):
            records.clear()
        namespace.purged = latest([*namespace.purged, *filter(None, purged)], most=self.books.ghost_bound, now=now)
        namespace.key, namespace.epoch = key, epoch
        if purge.holds_left:
            self.books.purges.append(purge)
        return _receipt(purge)

    def _marks(self, namespace: Namespace, tree: Tree, now: float) -> PurgedChain | None:
        """Return eight bytes of each block, up to the namespace's share of ghosts, until the blocks' natural end."""
        runs = [run for run in tree.runs() if not run.is_hollow]
        if not runs:
            return None
        most_marks = self.books.ghost_bound
        digests = (digest for run in runs for digest in run.digests)
        marks = marks_of(islice(digests, most_marks))
        ends = [min(life_ends(run, namespace.policy), age_ends(run, namespace.policy)) for run in runs]
        until = min(max(ends), now + namespace.policy.ttl_seconds)
        return PurgedChain(tree.root, tree.kin, tree.kv_format, marks, until)

    def _empty(self, namespace: Namespace, now: float) -> None:
        """Drop all blocks because caching is off. Sequences in flight add none."""
        self._pinning.disable(namespace, now)
        for hold in namespace.holds:
            hold.keeps = False
        ghost = Ghost("disabled", None, now)
        for tree in list(namespace.trees.values()):
            for run in [run for run in tree.runs() if not run.is_hollow]:
                self._departures.vacate(namespace, run, ghost)

    def _alive(self, namespace: Namespace, now: float) -> Callable[[Run], bool]:
        policy = namespace.policy
        return lambda run: not run.is_hollow and life_ends(run, policy) > now

    def _reclaim(self, now: float) -> None:
        """Expire due runs, a bounded number at a time."""
        remaining_runs = self.limits.reclaimed_runs
        while remaining_runs > 0 and (namespace := self.books.appointments.take_due(now)):
            self._pinning.end_due(namespace, now)
            while remaining_runs > 0 and (run := self._first_due(namespace, now)):
                self._departures.expire(namespace, run, now)
                remaining_runs -= 1
            self._appoint(namespace)

    def _first_due(self, namespace: Namespace, now: float) -> Run | None:
        """Return a run that has expired, or None. Out-of-date entries are dropped."""
        policy = namespace.policy
        if policy.ttl_mode == "sliding":
            for account in namespace.accounts:
                oldest = account.idle.oldest()
                if oldest and oldest.run.released + policy.ttl_seconds <= now:
                    return oldest.run
        for by_time, seconds in ((namespace.by_cap, 0.0), (namespace.by_age, policy.age_seconds())):
            while by_time.first_at() + seconds <= now:
                run = by_time.take_first()
                if run is None or run.is_hollow or run.pins:  # the end of the pin puts it back
                    continue
                if life_ends(run, policy) <= now:
                    by_time.add(run.created[0], run)  # for the part of it that may be left
                    return run
                by_time.add(cap_ends(run, policy) if by_time is namespace.by_cap else run.created[0], run)
        return None

    def _appoint(self, namespace: Namespace) -> None:
        """Set the timer for the namespace's next expiry. Later additions set their own timers."""
        policy = namespace.policy
        for by_time in (namespace.by_age, namespace.by_cap):
            by_time.tidy(namespace.runs)
        at = self._pinning.next_end(namespace) if namespace.pins else math.inf
        if policy.ttl_mode == "sliding":
            for account in namespace.accounts:
                if oldest := account.idle.oldest():
                    at = min(at, oldest.run.released + policy.ttl_seconds)
        at = min(at, namespace.by_cap.first_at(), namespace.by_age.first_at() + policy.age_seconds())
        self.books.appointments.make(namespace, at)


def _receipt(purge: Purge) -> PurgeReceipt:
    return PurgeReceipt(purge.namespace, purge.epoch, purge.at, purge.blocks, purge.bytes, purge.holds_left)
