"""How much of a tier each namespace may hold: reservation, limit and weight, in bytes of that tier.

A namespace is charged before anything is taken, so it pays for what it is about to hold. A limit is never passed. A
reservation cannot be taken by others, but lends what its owner does not hold. What is contended goes by weight.
"""

from dataclasses import dataclass

from engine_agent.cache.eviction import IdleList, unlink
from engine_agent.cache.index import TierCopy
from engine_agent.cache.policy import NamespacePolicy


@dataclass(frozen=True, slots=True)
class Shares:
    """A policy's shares of one tier, in bytes."""

    reserved_bytes: int
    limit_bytes: int
    is_limited: bool  # by less than the whole tier; what the tier itself lacks is nobody's quota
    pin_bytes: int
    weight: float


def shares_of(policy: NamespacePolicy, capacity_bytes: int) -> Shares:
    return Shares(
        reserved_bytes=int(policy.reserved_share * capacity_bytes),
        limit_bytes=int(policy.limit_share * capacity_bytes),
        is_limited=policy.limit_share < 1,
        pin_bytes=int(policy.pin_share * capacity_bytes),
        weight=policy.weight,
    )


class Account:
    """What one namespace holds of one tier, and what of that nobody uses."""

    __slots__ = (
        "grain_bytes",
        "idle",
        "idle_bytes",
        "listed_evictable",
        "namespace",
        "resident_by_format",
        "resident_bytes",
        "serial",
        "shadows",
        "shares",
        "step_bytes",
    )

    def __init__(self, namespace: str, serial: int, shares: Shares, *, step_bytes: int) -> None:
        self.namespace = namespace
        self.serial = serial
        self.shares = shares
        self.step_bytes = step_bytes
        self.resident_bytes = 0
        self.resident_by_format: dict[str, int] = {}  # in bytes; together they are the line above
        self.idle_bytes = 0
        self.grain_bytes = 1  # the largest page it ever held here
        self.listed_evictable = 0  # what of it the tier's sum holds
        self.idle = IdleList()
        self.shadows = IdleList()  # copies whose run also has one in a better tier: the first to go

    @property
    def evictable_bytes(self) -> int:
        """What others may take: idle, and above the reservation by whole blocks."""
        if not self.shares.reserved_bytes:
            return self.idle_bytes
        above = self.resident_bytes - self.shares.reserved_bytes
        return min(self.idle_bytes, above - above % self.grain_bytes) if above > 0 else 0

    @property
    def over_limit_bytes(self) -> int:
        return max(0, self.resident_bytes - self.shares.limit_bytes) if self.shares.is_limited else 0

    def steps(self, less_bytes: int = 0) -> int:
        return int(
            (self.resident_bytes - less_bytes - self.shares.reserved_bytes) / self.shares.weight // self.step_bytes
        )

    def charge(self, kv_format: str, size: int) -> None:
        """So many bytes more, or less."""
        self.resident_bytes += size
        held = self.resident_by_format[kv_format] = self.resident_by_format.get(kv_format, 0) + size
        assert held >= 0, f"{held} bytes of {kv_format}"

    def oldest_stamp(self) -> int:
        oldest = self.oldest()
        return oldest.run.stamp if oldest else 0

    def oldest(self) -> TierCopy | None:
        return self.shadows.oldest() or self.idle.oldest()

    def add_idle(self, copy: TierCopy, page_bytes: int) -> None:
        """A copy that was just released, or just came from the tier above: the newest there is."""
        self.idle.add_newest(copy)
        self.idle_bytes += len(copy.pages) * page_bytes

    def add_shadow(self, copy: TierCopy, page_bytes: int) -> None:
        self.shadows.add_newest(copy)
        self.idle_bytes += len(copy.pages) * page_bytes

    def put_back(self, copy: TierCopy, page_bytes: int) -> None:
        """As if it had not been taken out: what it was wanted for did not come about."""
        self.idle.add_back(copy)
        self.idle_bytes += len(copy.pages) * page_bytes

    def remove(self, copy: TierCopy, page_bytes: int) -> None:
        """Somebody uses it, or it goes."""
        unlink(copy)
        self.idle_bytes -= len(copy.pages) * page_bytes
