"""Statistics: a namespace's memory and counters, and how full the pool is."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from engine_agent.cache.books import DEVICE, Books, Counters, Namespace
from engine_agent.cache.sequences import Sequence


@dataclass(frozen=True, slots=True)
class TierUse:
    """A namespace's part of one tier."""

    tier: str
    resident_bytes: int
    idle_bytes: int
    reserved_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    namespace: str
    epoch: int
    resident_bytes: int  # on the device, in use or not
    resident_bytes_by_format: Mapping[str, int]  # of those; formats without bytes are left out
    resident_blocks: int  # in the index, in any tier
    sequences: int
    ghost_blocks: int
    ghost_horizon_seconds: float  # "cold" means: not seen within this; infinity while nothing was dropped
    tiers: tuple[TierUse, ...]
    counters: Counters

    @property
    def hit_ratio(self) -> float | None:
        counters = self.counters
        return counters.cached_tokens / counters.prompt_tokens if counters.prompt_tokens else None


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The device's pool. `waste_ratio` is the part of the sequences' pages that contains no token."""

    capacity_bytes: int
    used_bytes: int
    evictable_bytes: int
    sequences: int
    sequence_tokens: int
    sequence_slots: int  # tokens that its pages can store

    @property
    def usage_ratio(self) -> float:
        return self.used_bytes / self.capacity_bytes

    @property
    def waste_ratio(self) -> float:
        return 1 - self.sequence_tokens / self.sequence_slots if self.sequence_slots else 0.0


def namespace_stats(books: Books, namespace: Namespace, now: float) -> NamespaceStats:
    on_device = namespace.accounts[DEVICE]
    return NamespaceStats(
        namespace=namespace.namespace,
        epoch=namespace.epoch,
        resident_bytes=on_device.resident_bytes,
        resident_bytes_by_format={name: size for name, size in on_device.resident_by_format.items() if size},
        resident_blocks=namespace.indexed_blocks,
        sequences=len(namespace.holds),
        ghost_blocks=namespace.ghosts.blocks,
        ghost_horizon_seconds=namespace.ghosts.horizon_seconds(now),
        tiers=tuple(
            TierUse(
                tier.name,
                account.resident_bytes,
                account.idle_bytes,
                account.shares.reserved_bytes,
                account.shares.limit_bytes,
            )
            for tier, account in zip(books.tiers, namespace.accounts, strict=True)
        ),
        counters=Counters(**asdict(namespace.counters)),
    )


def pool_stats(books: Books, sequences: Collection[Sequence]) -> PoolStats:
    device = books.device
    return PoolStats(
        capacity_bytes=device.storage.capacity_bytes,
        used_bytes=device.storage.capacity_bytes - device.storage.free_bytes,
        evictable_bytes=device.evictable_bytes,
        sequences=len(sequences),
        sequence_tokens=sum(len(sequence.tokens) for sequence in sequences),
        sequence_slots=sum(len(sequence.pages) * sequence.identity.block_tokens for sequence in sequences),
    )
