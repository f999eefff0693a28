"""The engine's statistics as JSON types, for its admin API and its metrics. Reads only."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any, Protocol

from engine_agent.cache.books import Counters, Namespace
from engine_agent.cache.events import Event, Gap, Stored
from engine_agent.cache.ledger import OTHERS, Displaced, Pair
from engine_agent.cache.manager import BlockManager
from engine_agent.cache.prefixes import PurgeReceipt
from engine_agent.contracts.block_events import Load
from engine_agent.engine.notices import Notices
from engine_agent.engine.tenants import NOBODY, Tenants

_COUNTERS = tuple(field.name for field in fields(Counters))
# The journal and `/metrics` report prompt and cached tokens. They count finished answers, not admissions, so numbers
# from here would differ under the same names.
_OF_BLOCKS = tuple(name for name in _COUNTERS if name not in ("requests", "prompt_tokens", "cached_tokens"))
_GONE = ("expired_blocks", "evicted_blocks", "quota_blocks", "purged_blocks")
_counted, _of_blocks, _gone = attrgetter(*_COUNTERS), attrgetter(*_OF_BLOCKS), attrgetter(*_GONE)


class Asking(Protocol):
    """A running or waiting request."""

    @property
    def namespace(self) -> str: ...

    @property
    def live(self) -> Sequence[object]:
        """Return the request's unfinished answers."""


class Pins(Protocol):
    def status(self) -> Sequence[Mapping[str, Any]]:
        """Return every pin of the snapshot."""


class Reported(Protocol):
    """An engine of any backend, as far as it is reported."""

    @property
    def boot(self) -> str: ...
    @property
    def manager(self) -> BlockManager: ...
    @property
    def tenants(self) -> Tenants: ...
    @property
    def pins(self) -> Pins: ...
    @property
    def notices(self) -> Notices: ...
    @property
    def kv_formats(self) -> Sequence[str]: ...
    @property
    def running(self) -> Sequence[Asking]: ...
    @property
    def waiting(self) -> Sequence[Asking]: ...
    @property
    def is_draining(self) -> bool: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def computed_tokens(self) -> int: ...
    @property
    def generated_tokens(self) -> int: ...
    @property
    def seats(self) -> int: ...
    def page_stats(self) -> Mapping[str, Any]: ...
    def seconds_behind(self) -> float: ...


def engine_stats(engine: Reported) -> dict[str, Any]:
    running, waiting = engine.running, engine.waiting
    return {
        "boot": engine.boot,
        "snapshot_hash": engine.tenants.snapshot.hash,
        "is_draining": engine.is_draining,
        "running": sum(len(request.live) for request in running),
        "waiting": len(waiting),
        "preemptions": engine.preemptions,
        "steps": engine.steps,
        "computed_tokens": engine.computed_tokens,
        "generated_tokens": engine.generated_tokens,
        "pool": _pool(engine.manager),
        "host": _host(engine.manager),
        "namespaces": list(_namespaces(engine)),
        "evictions": [_eviction(pair, displaced) for pair, displaced in engine.manager.ledger.pairs().items()],
        "warnings": [asdict(notice) for notice in engine.notices.latest],
        "warning_counts": dict(engine.notices.counts),
        "pages": engine.page_stats(),
    }


def engine_brief(engine: Reported) -> dict[str, Any]:
    """Return the values a sidecar reads twice a second. Their cost does not grow with the number of namespaces."""
    pool = _pool(engine.manager)
    return {
        "boot": engine.boot,
        "snapshot_hash": engine.tenants.snapshot.hash,
        "is_draining": engine.is_draining,
        "running": sum(len(request.live) for request in engine.running),
        "waiting": len(engine.waiting),
        "pool": {name: pool[name] for name in ("capacity_bytes", "used_bytes", "evictable_bytes")},
    }


def engine_load(engine: Reported) -> Load:
    """Return the values by which a gateway compares engines. Blocks are those of the first format it serves."""
    pool = engine.manager.pool()
    page_bytes = engine.manager.page_bytes(engine.kv_formats[0])
    return Load(
        running=sum(len(request.live) for request in engine.running),
        waiting=len(engine.waiting),
        seats=engine.seats,
        free_blocks=(pool.capacity_bytes - pool.used_bytes + pool.evictable_bytes) // page_bytes,
        pool_blocks=pool.capacity_bytes // page_bytes,
        seconds_behind=engine.seconds_behind(),
    )


def engine_levels(engine: Reported) -> dict[str, Any]:
    """Return how full the engine is, and what left its cache since the boot, for namespaces with any data."""
    cache = engine.manager.cache
    cache.now()  # so that expired blocks count as gone
    namespaces = [(tenant.namespace, cache.namespace(tenant.namespace)) for tenant in engine.tenants]
    return {
        "boot": engine.boot,
        "pool": engine_brief(engine)["pool"],
        "preemptions": engine.preemptions,
        "namespaces": {
            name: _level(namespace)
            for name, namespace in namespaces
            if any(_gone(namespace.counters)) or _is_resident(namespace)
        },
        "evictions": _evictions(engine),
        "formats": {
            name: bytes_by_format for name, namespace in namespaces if (bytes_by_format := _formats(namespace))
        },
        "pins": [_pin(pin_status, cache.block_tokens) for pin_status in engine.pins.status()],
    }


def _evictions(engine: Reported) -> list[dict[str, Any]]:
    """Return evictions without blocks that another tier still has. Namespaces that are not tenants are left out."""
    now, sums = engine.manager.cache.now(), dict[tuple[str, str, str], Displaced]()
    for pair, displaced in engine.manager.ledger.pairs().items():
        if displaced.blocks == displaced.demoted_blocks or not (
            pair.victim == OTHERS or _is_served(engine, pair.victim)
        ):
            continue
        by = OTHERS if pair.by == NOBODY else pair.by
        entry = sums.setdefault((pair.victim, by, pair.cause), Displaced())
        entry.blocks += displaced.blocks - displaced.demoted_blocks
        entry.bytes += displaced.bytes - displaced.demoted_bytes
        entry.last_at = max(entry.last_at, displaced.last_at)
    return [
        {
            **dict(zip(("victim", "by", "cause"), key, strict=True)),
            "blocks": displaced.blocks,
            "bytes": displaced.bytes,
            "seconds_ago": max(0.0, round(now - displaced.last_at, 3)),
        }
        for key, displaced in sums.items()
    ]


def _is_served(engine: Reported, namespace: str) -> bool:
    return namespace != NOBODY and engine.tenants.known(namespace) is not None


def _formats(namespace: Namespace) -> dict[str, int]:
    """Return bytes on the device by format; formats without bytes are left out."""
    return {name: size for name, size in namespace.accounts[0].resident_by_format.items() if size}


def _pin(status: Mapping[str, Any], block_tokens: int) -> dict[str, Any]:
    wanted_blocks = status["wanted_blocks"]
    return {
        **{name: status[name] for name in ("id", "namespace", "state", "is_warming", "resident_bytes", "problem")},
        "wanted_tokens": None if wanted_blocks is None else wanted_blocks * block_tokens,
        "resident_tokens": status["resident_blocks"] * block_tokens,
    }


def _level(namespace: Namespace) -> dict[str, int]:
    device, *lower = namespace.accounts
    resident = {"resident_bytes": device.resident_bytes, "host_bytes": sum(account.resident_bytes for account in lower)}
    return {**resident, **dict(zip(_GONE, _gone(namespace.counters), strict=True))}


def _is_resident(namespace: Namespace) -> bool:
    return any(account.resident_bytes for account in namespace.accounts)


def engine_events(engine: Reported, since: int, boot: str) -> dict[str, Any]:
    """Return events after `since`, or the whole index if those are no longer available."""
    log = engine.manager.events
    changes = log.since(since, boot=boot)
    if isinstance(changes, Gap):
        snapshot = log.snapshot()
        stored = [_stored(run) for run in snapshot.stored if run.namespace != NOBODY]
        return {"boot": snapshot.boot, "number": snapshot.number, "snapshot": stored}
    return {
        "boot": changes.boot,
        "number": changes.events[-1].number if changes.events else since,
        "events": [_event(event) for event in changes.events if event.namespace != NOBODY],
    }


def receipt(purge: PurgeReceipt, at: float) -> dict[str, Any]:
    """Return a purge receipt. `at`: unix seconds, because the block manager's clock is internal."""
    return {
        "namespace": purge.namespace,
        "epoch": purge.epoch,
        "at": at,
        "blocks": purge.blocks,
        "bytes": purge.bytes,
        "sequences_left": purge.sequences_left,
        "is_done": purge.is_done,
    }


def _pool(manager: BlockManager) -> dict[str, Any]:
    pool = manager.pool()
    return {
        "capacity_bytes": pool.capacity_bytes,
        "used_bytes": pool.used_bytes,
        "evictable_bytes": pool.evictable_bytes,
        "usage_ratio": (pool.used_bytes - pool.evictable_bytes) / pool.capacity_bytes,  # as vLLM: idle is free
        "waste_ratio": pool.waste_ratio,
        "sequences": pool.sequences,
    }


def _host(manager: BlockManager) -> dict[str, Any] | None:
    tiers = manager.cache.books.tiers
    if len(tiers) < 2:
        return None
    storage = tiers[1].storage
    used = storage.capacity_bytes - storage.free_bytes
    return {
        "capacity_bytes": storage.capacity_bytes,
        "used_bytes": used,
        "evictable_bytes": tiers[1].evictable_bytes,
        "usage_ratio": used / storage.capacity_bytes,
    }


def _namespaces(engine: Reported) -> Iterator[dict[str, Any]]:
    """Iterate over the namespaces with data. Thousands of unused ones would only slow each poll down."""
    running, waiting = (
        Counter(request.namespace for request in requests) for requests in (engine.running, engine.waiting)
    )
    cache = engine.manager.cache
    cache.now()  # so that expired blocks count as gone
    for tenant in engine.tenants:
        namespace = cache.namespace(tenant.namespace)
        is_asked = tenant.namespace in running or tenant.namespace in waiting
        if is_asked or any(_counted(namespace.counters)) or _is_resident(namespace):
            yield {
                "namespace": tenant.namespace,
                "organisation": tenant.organisation_id,
                "organisation_slug": tenant.organisation,
                "namespace_slug": tenant.slug,
                "revision": tenant.revision,
                "running": running[tenant.namespace],
                "waiting": waiting[tenant.namespace],
                **_cached(engine, namespace),
            }


def _cached(engine: Reported, namespace: Namespace) -> dict[str, Any]:
    device, *lower = namespace.accounts
    return {
        "epoch": namespace.epoch,
        "resident_bytes": device.resident_bytes,
        "resident_blocks": namespace.indexed_blocks,
        "resident_bytes_by_dtype": _formats(namespace),
        "host_bytes": sum(account.resident_bytes for account in lower),
        "tiers": [
            {
                "tier": tier.name,
                "resident_bytes": account.resident_bytes,
                "idle_bytes": account.idle_bytes,
                "reserved_bytes": account.shares.reserved_bytes,
                "limit_bytes": account.shares.limit_bytes,
            }
            for tier, account in zip(engine.manager.cache.books.tiers, namespace.accounts, strict=True)
        ],
        "ghost_blocks": namespace.ghosts.blocks,
        "counters": dict(zip(_OF_BLOCKS, _of_blocks(namespace.counters), strict=True)),
    }


def _eviction(pair: Pair, displaced: Displaced) -> dict[str, Any]:
    return {
        "victim": pair.victim,
        "by": pair.by,
        "cause": pair.cause,
        "tier": pair.tier,
        "blocks": displaced.blocks,
        "bytes": displaced.bytes,
        "demoted_blocks": displaced.demoted_blocks,
        "demoted_bytes": displaced.demoted_bytes,
    }


def _event(event: Event) -> Mapping[str, Any]:
    return {
        "number": event.number,
        "kind": event.kind,
        "namespace": event.namespace,
        "kv_dtype": event.kv_format,
        "root": event.root.hex(),
        "tier": event.tier,
        "parent": event.parent.hex(),
        "digests": [digest.hex() for digest in event.digests],
    }


def _stored(stored: Stored) -> Mapping[str, Any]:
    return {
        "namespace": stored.namespace,
        "kv_dtype": stored.kv_format,
        "root": stored.root.hex(),
        "tiers": list(stored.tiers),
        "parent": stored.parent.hex(),
        "digests": [digest.hex() for digest in stored.digests],
    }
