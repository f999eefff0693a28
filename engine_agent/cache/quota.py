"""Quotas: how much of a tier each namespace may use, by reservation, limit and weight, in bytes of that tier.

A namespace is charged before it gets pages. It never exceeds its limit. Others cannot take a reservation, but they can
borrow its unused part. Contended memory is divided by weight.
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
    is_limited: bool  # to less than the whole tier; a shortage of the tier itself is not a quota
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
    """The bytes that one namespace has in one tier, and how many of them are idle."""

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
        self.resident_by_format: dict[str, int] = {}  # in bytes; the sum is `resident_bytes`
        self.idle_bytes = 0
        self.grain_bytes = 1  # the largest page it ever had here
        self.listed_evictable = 0  # its contribution to the tier's sum
        self.idle = IdleList()
        self.shadows = IdleList()  # copies whose run also has one in a higher tier: evicted first

    @property
    def evictable_bytes(self) -> int:
        """Return the bytes that others may take: idle, and above the reservation by whole blocks."""
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
        """Add `size` bytes, which may be negative."""
        self.resident_bytes += size
        format_bytes = self.resident_by_format[kv_format] = self.resident_by_format.get(kv_format, 0) + size
        assert format_bytes >= 0, f"{format_bytes} bytes of {kv_format}"

    def oldest_stamp(self) -> int:
        oldest = self.oldest()
        return oldest.run.stamp if oldest else 0

    def oldest(self) -> TierCopy | None:
        return self.shadows.oldest() or self.idle.oldest()

    def add_idle(self, copy: TierCopy, page_bytes: int) -> None:
        """Add a copy that was just released or just demoted, as the newest."""
        self.idle.add_newest(copy)
        self.idle_bytes += len(copy.pages) * page_bytes

    def add_shadow(self, copy: TierCopy, page_bytes: int) -> None:
        self.shadows.add_newest(copy)
        self.idle_bytes += len(copy.pages) * page_bytes

    def put_back(self, copy: TierCopy, page_bytes: int) -> None:
        """Put a copy back in its old position, after a planned use did not happen."""
        self.idle.add_back(copy)
        self.idle_bytes += len(copy.pages) * page_bytes

    def remove(self, copy: TierCopy, page_bytes: int) -> None:
        """Remove a copy that is used again or evicted."""
        unlink(copy)
        self.idle_bytes -= len(copy.pages) * page_bytes
