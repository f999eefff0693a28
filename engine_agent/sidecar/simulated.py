"""A simulated engine: it applies snapshots, forgets purged namespaces and counts made-up requests.

It serves tests of fleets larger than the available hardware, with a journal of made-up requests on demand. All code
around it is production's, so the control plane sees an ordinary agent. The counters follow from the applied policies,
as a hit ratio follows from a TTL, so that a harmful policy shows its harm. There are no tokens, no memory and no model.
"""

import logging
import platform
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_agent.contracts.enforcement import DECLARED_FIELDS, Enforcement, Graded, declared, enforcement_encode
from engine_agent.contracts.protocol import (
    CANARIES,
    Change,
    HashMismatch,
    MalformedMessage,
    Policy,
    Snapshot,
    change_apply,
    news_decode,
    snapshot_build,
)
from engine_agent.contracts.wire import TTFT_SECONDS
from engine_agent.process.version import luminet_version
from engine_agent.sidecar.holder import HolderMismatch, HolderRejected, HolderState, JournalBoot, JournalPage, Proof
from engine_agent.sidecar.simulated_journal import Asked, SimulatedJournal
from kernels.formats import OFFERED

log = logging.getLogger("luminet.simulated")

MODEL = {"name": "simulated", "revision": "1", "kv_dtypes": list(OFFERED), "context_tokens": 8192}
BLOCK_TOKENS = 16
BLOCK_BYTES = dict.fromkeys(OFFERED, 4096)
POOL_BYTES = 64 * 2**20
REQUESTS_PER_SECOND = 4.0  # of each namespace
PROMPT_TOKENS = 512  # of each request
REUSED_AFTER_SECONDS = 60.0  # on average: a TTL of the same length hits half of the prompts
HIT_SECONDS, MISS_SECONDS = 0.02, 0.3  # until the first token


FOLLOWED = Graded("best_effort", "a simulated engine caches nothing; the hits it counts follow from this field")
NOT_COMPUTED = Graded("untested", "a simulated engine computes nothing")
NO_TIER = Graded("refused", "a simulated engine has no memory tiers")

_EMPTY = snapshot_build("engine", {}, {})


@dataclass(slots=True)
class Counts:
    """A namespace's counters since boot."""

    requests: float = 0.0
    cached_share: float = 0.0  # cached tokens, in whole requests' worth
    missed: dict[str, float] = field(default_factory=dict)

    def add(self, requests: float, policy: Policy) -> None:
        ratio = hit_ratio(policy)
        reason = "expired" if policy.get("prefix_caching", True) else "disabled"
        self.requests += requests
        self.cached_share += requests * ratio
        self.missed[reason] = self.missed.get(reason, 0.0) + requests * (1 - ratio)


def hit_ratio(policy: Policy) -> float:
    """Return the share of prompts that hit under this policy: it grows with the TTL, and is 0 without a cache."""
    if not policy.get("prefix_caching", True):
        return 0.0
    ttl_seconds = float(policy.get("ttl_seconds", 300))
    return ttl_seconds / (ttl_seconds + REUSED_AFTER_SECONDS)


def counted(all_counts: Collection[Counts]) -> dict[str, Any]:
    """Return the counters of a heartbeat (wire.COUNTED), rounded down so that they never decrease."""
    requests = int(sum(counts.requests for counts in all_counts))
    hits = int(sum(counts.cached_share for counts in all_counts))
    missed: dict[str, float] = {}
    for counts in all_counts:
        for reason, share in counts.missed.items():
            missed[reason] = missed.get(reason, 0.0) + share
    within = [hits * (edge >= HIT_SECONDS) + (requests - hits) * (edge >= MISS_SECONDS) for edge in TTFT_SECONDS]
    return {
        "requests": requests,
        "errors": 0,
        "prompt_tokens": requests * PROMPT_TOKENS,
        "cached_tokens": hits * PROMPT_TOKENS,
        "missed": {reason: int(share) * PROMPT_TOKENS for reason, share in missed.items()},
        "ttft_buckets": [*within, requests],
    }


@dataclass(slots=True)
class SimulatedEngine:
    """A simulated engine's state. `clock` counts seconds and never goes backwards."""

    clock: Callable[[], float]
    boot: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_draining: bool = False
    held: Snapshot | None = None
    counts: dict[str, Counts] = field(default_factory=dict)  # by namespace
    filled_since: dict[str, float] = field(default_factory=dict)  # by namespace: when its blocks began to accumulate
    counted_until: float = 0.0
    receipts: list[dict[str, Any]] = field(default_factory=list)

    def obey(self, news: Snapshot | Change, *, at: float) -> str:
        """Apply a snapshot or change. Raise HashMismatch if a change was made for another state."""
        previous = self.held
        snapshot = self._after(news)
        self._count()
        for namespace, epoch in _namespaces(previous):
            entry = snapshot.entries.get(f"ns/{namespace}")
            if entry is None or entry["epoch"] > epoch:
                self._purge(namespace, epoch if entry is None else entry["epoch"], at)
        self.held = snapshot
        return snapshot.hash

    def _after(self, news: Snapshot | Change) -> Snapshot:
        if isinstance(news, Snapshot):
            return news
        return change_apply(self.held or _EMPTY, news)

    def _purge(self, namespace: str, epoch: int, at: float) -> None:
        blocks = self.blocks(namespace)
        self.filled_since[namespace] = self.clock()
        receipt = {"namespace": namespace, "epoch": epoch, "blocks": blocks, "bytes": blocks * BLOCK_BYTES["fp8"]}
        self.receipts.append({**receipt, "number": len(self.receipts) + 1, "at": at})

    def blocks(self, namespace: str) -> int:
        """Return the blocks since the last purge: one for each request, up to the size of the pool."""
        since = self.filled_since.setdefault(namespace, self.clock())
        block_count = int((self.clock() - since) * REQUESTS_PER_SECOND)
        return min(block_count, POOL_BYTES // BLOCK_BYTES["fp8"])

    def levels(self, namespaces: Iterable[str]) -> dict[str, Any]:
        """Return the content of a `levels` report. Only purges remove blocks from this cache."""
        sizes = {namespace: self.blocks(namespace) * BLOCK_BYTES["fp8"] for namespace in namespaces}
        purged: dict[str, int] = {}
        for receipt in self.receipts:
            purged[receipt["namespace"]] = purged.get(receipt["namespace"], 0) + receipt["blocks"]
        used_bytes = min(POOL_BYTES, sum(sizes.values()))
        zeros = dict.fromkeys(("host_bytes", "expired_blocks", "evicted_blocks", "quota_blocks"), 0)
        return {
            "boot": self.boot,
            "pool": {"capacity_bytes": POOL_BYTES, "used_bytes": used_bytes, "evictable_bytes": used_bytes},
            "preemptions": 0,
            "namespaces": {
                name: {"resident_bytes": size, **zeros, "purged_blocks": purged.get(name, 0)}
                for name, size in sizes.items()
                if size
            },
            "evictions": [],
            "formats": {name: {self._format(name): size} for name, size in sizes.items() if size},
            "pins": [],
        }

    def _format(self, namespace: str) -> str:
        entry = self.held.entries.get(f"ns/{namespace}") if self.held else None
        policy = self.held.policies[entry["policy"]] if self.held and entry else {}
        return str(policy.get("kv_dtype", "fp8"))

    def asked(self) -> list[Asked]:
        """Return the customers' namespaces for which to record requests. Canary namespaces have no customers."""
        return [
            Asked(
                namespace=namespace,
                slug=entry["slug"],
                organisation_id=entry["org"],
                organisation=self.held.entries[f"org/{entry['org']}"]["slug"],
                revision=entry["revision"],
                kv_dtype=(policy := self.held.policies[entry["policy"]]).get("kv_dtype", "fp8"),
                hit_ratio=hit_ratio(policy),
                is_caching=bool(policy.get("prefix_caching", True)),
            )
            for namespace, entry in self._entries()
            if self.held is not None and entry["org"] not in CANARIES
        ]

    def counters(self, scopes: Collection[str]) -> dict[str, Any]:
        self._count()
        return {scope: counted(list(self._of(scope))) for scope in scopes}

    def _of(self, scope: str) -> Iterator[Counts]:
        kind, _, name = scope.partition("/")
        for namespace, entry in self._entries():
            if kind == "fleet" or (kind == "org" and entry["org"] == name) or (kind == "ns" and namespace == name):
                yield self.counts.setdefault(namespace, Counts())

    def _count(self) -> None:
        """Count the made-up requests since the last call, under the policies applied until now."""
        now = self.clock()
        requests = max(0.0, now - (self.counted_until or now)) * REQUESTS_PER_SECOND
        self.counted_until = now
        for namespace, entry in self._entries():
            self.filled_since.setdefault(namespace, now)
            assert self.held is not None
            self.counts.setdefault(namespace, Counts()).add(requests, self.held.policies[entry["policy"]])

    def _entries(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if self.held is not None:
            for key, entry in self.held.entries.items():
                if key.startswith("ns/"):
                    yield key[3:], entry


def _namespaces(snapshot: Snapshot | None) -> list[tuple[str, int]]:
    entries = {} if snapshot is None else snapshot.entries
    return [(key[3:], entry["epoch"]) for key, entry in entries.items() if key.startswith("ns/")]


class SimulatedHolder:
    """A Holder for `SimulatedEngine`.

    The control plane's clock dates its receipts and records; its own clock counts seconds. `traffic` is in requests a
    second.
    """

    def __init__(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        traffic: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._labels, self._clock = name, labels, clock
        self._engine = SimulatedEngine(clock)
        self._journal = SimulatedJournal(self._engine.boot, traffic)
        self._ahead = time.time() - clock()

    async def about(self) -> Mapping[str, Any]:
        return about(self._labels)

    async def state(self) -> HolderState:
        engine = self._engine
        return HolderState(
            boot=engine.boot,
            state="draining" if engine.is_draining else "ready",
            hash=None if engine.held is None else engine.held.hash,
            load={"running": 0, "waiting": 0},
            pool={"capacity_bytes": POOL_BYTES, "used_bytes": 0},
        )

    async def apply(self, news: bytes) -> str:
        try:
            applied_hash = self._engine.obey(news_decode(news), at=self._now())
        except HashMismatch as problem:
            raise HolderMismatch(str(problem)) from None
        except MalformedMessage as problem:
            raise HolderRejected(str(problem)) from None
        log.info("%s obeys %s", self._name, applied_hash)
        return applied_hash

    async def proofs(self, boot: str, after: int) -> Sequence[Proof]:
        engine = self._engine
        first = after if boot == engine.boot else 0
        return [Proof(boot=engine.boot, **receipt) for receipt in engine.receipts if receipt["number"] > first]

    async def counters(self, scopes: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        return self._engine.counters(scopes)

    async def operate(self, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if action in ("drain", "resume"):
            self._engine.is_draining = action == "drain"
            return {"is_draining": self._engine.is_draining, "left": 0}
        return {"problems": []}

    async def pins_wanted(self) -> Sequence[str]:
        return ()

    async def pin_content(self, pin_id: str, content: Mapping[str, Any]) -> None:
        raise HolderRejected("a simulated engine keeps no pins")

    async def set_clock(self, offset_seconds: float) -> None:
        self._ahead = time.time() + offset_seconds - self._clock()

    def _now(self) -> float:
        return self._clock() + self._ahead

    async def journal(self) -> Sequence[JournalBoot]:
        if self._journal.rate:
            self._journal.go_on(self._engine.asked(), now=self._clock(), at=self._now())
        return self._journal.boots()

    async def journal_page(self, boot: str, after: int, limit: int) -> JournalPage:
        return self._journal.page(boot, after, limit)

    async def journal_cut(self, boot: str, upto: int) -> None:
        self._journal.cut(boot, upto)

    async def levels(self) -> Mapping[str, Any] | None:
        """Return the levels of namespaces with traffic, or None without traffic."""
        return self._engine.levels(self._journal.namespaces) if self._journal.rate else None

    async def gaps(self, namespaces: Sequence[str]) -> Mapping[str, Any]:
        """Return no forecasts, because they would be made up."""
        return {}


def about(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the description that a simulated agent reports when it joins."""
    return {
        "backend": "simulated",
        "version": luminet_version(),
        "address": None,
        "accelerator": None,
        "models": [MODEL],
        "kv_dtypes": list(OFFERED),
        "enforcement": enforcement_encode(simulated_enforcement()),
        "pool": {"capacity_bytes": POOL_BYTES, "block_tokens": BLOCK_TOKENS, "block_bytes": BLOCK_BYTES},
        "labels": dict(labels),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def simulated_enforcement() -> Enforcement:
    """Return the grades of enforcement: counters follow the fields of `hit_ratio`, and no other field has an effect."""
    offload = {"none": NOT_COMPUTED, "host": NO_TIER, "disk": NO_TIER}
    followed = dict.fromkeys(("prefix_caching", "ttl_seconds"), FOLLOWED)
    return declared({**dict.fromkeys(DECLARED_FIELDS, NOT_COMPUTED), **followed, "offload": offload})
