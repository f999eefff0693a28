"""The state that the rest of this package works on: namespaces, tiers, loose pages, and the records of what happened.

No decisions are made here. `holds.py` and `departures.py` change the state, `prefixes.py` is the entry point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_agent.cache.errors import InvalidValue, UnknownNamespace
from engine_agent.cache.events import EventLog
from engine_agent.cache.eviction import link_before
from engine_agent.cache.expiry import Appointments, ByTime, cap_ends, idle_ends
from engine_agent.cache.gaps import ReuseGaps
from engine_agent.cache.index import GoneReason, Kinship, Run, Tree, split_run
from engine_agent.cache.keys import Digest
from engine_agent.cache.ledger import Ledger
from engine_agent.cache.operations import Operation, Zero
from engine_agent.cache.pins import Pin
from engine_agent.cache.policy import NamespacePolicy, is_number
from engine_agent.cache.quota import Account
from engine_agent.cache.reasons import Ghosts, PurgedChain
from engine_agent.cache.storage import Storage
from engine_agent.cache.tiers import Tier

TIERS = ("device", "host", "disk")
DEVICE = 0


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Bounds on memory and on the work of one call. Only `cold` and the reuse gaps depend on them."""

    ghost_blocks: int = 1_000_000  # shared by the namespaces in equal parts
    event_blocks: int = 262_144
    ledger_pairs: int = 4_096
    gap_samples: int = 2_048  # of each namespace
    purged_pins: int = 1_000  # of each namespace; they report "purged" until they are set again
    reclaimed_runs: int = 4_096  # by one call; other expired runs wait for the next call, and cannot be matched
    still_readings: int = 65_536  # equal clock readings in a row before the clock counts as stopped
    demote_after_hits: int = 1
    demote_least_seconds: float = 1.0  # of remaining life
    zero_expired: bool = True
    tables_are_fixed: bool = (
        False  # True: pages in a block table cannot be replaced, because the engine has already passed the table on
    )

    def __post_init__(self) -> None:
        for name in (
            "ghost_blocks",
            "event_blocks",
            "ledger_pairs",
            "gap_samples",
            "purged_pins",
            "reclaimed_runs",
            "still_readings",
        ):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise InvalidValue(name, value, "a whole number above 0")
        if type(self.demote_after_hits) is not int or self.demote_after_hits < 0:
            raise InvalidValue("demote_after_hits", self.demote_after_hits, "a whole number, 0 or more")
        if not is_number(self.demote_least_seconds) or not self.demote_least_seconds >= 0:
            raise InvalidValue("demote_least_seconds", self.demote_least_seconds, "seconds, 0 or more")
        for name in ("zero_expired", "tables_are_fixed"):
            if type(value := getattr(self, name)) is not bool:
                raise InvalidValue(name, value, "true or false")


@dataclass(slots=True)
class Counters:
    """Counts of a namespace's blocks and tokens. They only rise, and inserted = gone + indexed always holds."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    inserted_blocks: int = 0
    expired_blocks: int = 0
    evicted_blocks: int = 0
    quota_blocks: int = 0
    purged_blocks: int = 0
    disabled_blocks: int = 0
    shared_blocks: int = 0  # computed twice at the same time, stored once
    demoted_blocks: int = 0
    loaded_blocks: int = 0
    damaged_blocks: int = 0  # of those evicted, how many because a load returned other bytes than were demoted

    def count_gone(self, reason: GoneReason, blocks: int) -> None:
        name = f"{reason}_blocks"
        setattr(self, name, getattr(self, name) + blocks)


@dataclass(slots=True, eq=False)
class Purge:
    """A purge in progress: what it has freed so far, and how many sequences still use pages from before."""

    namespace: str
    epoch: int
    at: float
    blocks: int = 0
    bytes: int = 0
    holds_left: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Hold:
    """A sequence's lease of the index: the chain from its root to `depth`, whose last run is `anchor`."""

    namespace: "Namespace"
    kv_format: str
    cap_seconds: float
    tree: Tree | None = None  # None: none of its blocks is matched or cached
    anchor: Run | None = None
    depth: int = 0
    keeps: bool = True  # False: the blocks it fills are not added to the index
    purge: Purge | None = None  # when the lease ends, its pages are zeroed and counted in this purge


@dataclass(slots=True, eq=False, repr=False)
class Namespace:
    namespace: str
    serial: int
    key: bytes
    epoch: int
    policy: NamespacePolicy
    gaps: ReuseGaps
    accounts: list[Account] = field(default_factory=list)  # one for each tier
    trees: dict[Digest, Tree] = field(default_factory=dict)
    kin: dict[Kinship, dict[Digest, Tree]] = field(default_factory=dict)
    by_age: ByTime = field(default_factory=lambda: ByTime("age_entry"))
    by_cap: ByTime = field(default_factory=lambda: ByTime("cap_entry"))
    due_at: float = math.inf
    ghosts: Ghosts = field(default_factory=Ghosts)
    purged: list[PurgedChain] = field(default_factory=list)
    pins: dict[str, Pin] = field(default_factory=dict)
    holds: set[Hold] = field(default_factory=set)
    counters: Counters = field(default_factory=Counters)
    indexed_blocks: int = 0
    runs: int = 0  # not hollow

    def add_tree(self, tree: Tree) -> None:
        self.trees[tree.root] = tree
        self.kin.setdefault(tree.kin, {})[tree.root] = tree

    def drop_tree(self, tree: Tree) -> None:
        del self.trees[tree.root]
        family = self.kin[tree.kin]
        del family[tree.root]
        if not family:
            del self.kin[tree.kin]


class Books:
    def __init__(self, storages: Sequence[Storage], *, limits: CacheLimits, boot: str) -> None:
        if not 1 <= len(storages) <= len(TIERS):
            raise InvalidValue("storages", len(storages), f"1 to {len(TIERS)}")
        self.limits = limits
        self.operations: list[Operation] = []
        self.tiers = [Tier(level, TIERS[level], storage, self.operations) for level, storage in enumerate(storages)]
        self.namespaces: dict[str, Namespace] = {}
        self.appointments: Appointments[Namespace] = Appointments()
        self.loose: dict[int, int] = {}  # device pages in no index that several block tables name → number of tables
        self.ledger = Ledger(most_pairs=limits.ledger_pairs)
        self.purges: list[Purge] = []
        self.events = EventLog(
            boot=boot,
            most_digests=limits.event_blocks,
            tiers=TIERS[: len(storages)],
            trees=lambda: (tree for namespace in self.namespaces.values() for tree in namespace.trees.values()),
        )
        self._stamp = 0

    @property
    def device(self) -> Tier:
        return self.tiers[DEVICE]

    @property
    def ghost_bound(self) -> int:
        return max(256, self.limits.ghost_blocks // max(1, len(self.namespaces)))

    def namespace(self, name: str) -> Namespace:
        namespace = self.namespaces.get(name)
        if namespace is None:
            raise UnknownNamespace(name)
        return namespace

    def next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def split(self, run: Run, blocks: int) -> Run:
        """Call `split_run`, insert the new run's copies next to the old ones in each list, and assign their pages."""
        upper = split_run(run, blocks)
        namespace = self.namespaces[run.tree.namespace]
        for tier, copy, cut in zip(self.tiers, run.copies, upper.copies, strict=True):
            if copy and cut:
                tier.storage.assign(cut.pages, cut)
                if copy.is_listed:
                    link_before(cut, copy.newer)
        if run.is_hollow:
            namespace.ghosts.split(run, upper)
            return upper
        namespace.runs += 1
        self.note_birth(namespace, upper)
        if run.created[0] != upper.created[0]:
            self.note_birth(namespace, run)
        self.await_end(namespace, upper)
        return upper

    def note_birth(self, namespace: Namespace, run: Run) -> None:
        """Queue the run for expiry by age: its first block was created at `created[0]`."""
        namespace.by_age.add(run.created[0], run)
        namespace.by_age.tidy(namespace.runs)
        self.appointments.make(namespace, run.created[0] + namespace.policy.age_seconds())

    def await_end(self, namespace: Namespace, run: Run) -> None:
        """Schedule a check for when the run's TTL or request cap ends, after these were restarted."""
        policy = namespace.policy
        self.appointments.make(namespace, idle_ends(run, policy) if not run.holders else math.inf)
        if run.cap_seconds < math.inf:
            at = cap_ends(run, policy)
            namespace.by_cap.add(at, run)
            namespace.by_cap.tidy(namespace.runs)
            self.appointments.make(namespace, at)

    def zero(self, tier: Tier, kv_format: str, pages: Sequence[int]) -> None:
        if pages:
            self.operations.append(Zero(tier.name, kv_format, tuple(pages)))  # type: ignore[arg-type]
