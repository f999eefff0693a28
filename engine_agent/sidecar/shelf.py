"""Keep the current snapshot in memory, to apply changes to it, and in the store. CPU-heavy work runs in threads."""

import asyncio
from dataclasses import replace

from engine_agent.contracts.protocol import (
    Entry,
    HashMismatch,
    Snapshot,
    change_apply,
    change_decode,
    snapshot_decode,
    snapshot_encode,
)
from engine_agent.sidecar.effects import Apply
from engine_agent.sidecar.store import Store, Stored


class Shelf:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.stored: Stored | None = store.read()
        # The last snapshot built here, applied or not.
        self.newest = None if self.stored is None else self.stored.snapshot

    async def after(self, effect: Apply) -> Snapshot:
        """Return the snapshot that the effect leads to. Raise ProtocolError if its hash is not the expected one."""
        return await asyncio.to_thread(self._after, effect)

    async def put(self, generation: int, snapshot: Snapshot) -> None:
        """Store the snapshot. It is on disk when it returns."""
        await asyncio.to_thread(self._store.keep, generation, snapshot)
        self.stored = Stored(generation, snapshot)

    async def encoded(self, snapshot: Snapshot) -> bytes:
        return await asyncio.to_thread(snapshot_encode, snapshot)

    def _after(self, effect: Apply) -> Snapshot:
        stored_snapshot = None if self.stored is None else self.stored.snapshot
        snapshot = _made(effect, stored_snapshot)
        if snapshot is None or snapshot.hash != effect.target:
            raise HashMismatch(expected=effect.target, found=snapshot.hash if snapshot else "none")
        self.newest = snapshot
        return snapshot


def _made(effect: Apply, base: Snapshot | None) -> Snapshot | None:
    if effect.content is None:
        return base
    if not effect.is_change:
        return shared(snapshot_decode(effect.content), base)
    return base and change_apply(base, change_decode(effect.content))


def shared(snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
    """Return the snapshot, sharing equal parts with `previous`.

    Two snapshots then need little more memory than one.
    """
    if previous is None or previous.kind != snapshot.kind:
        return snapshot
    if previous.hash == snapshot.hash:
        return previous
    entries: dict[str, Entry] = {}
    buckets = dict(snapshot.buckets)
    for org, bucket in snapshot.buckets.items():
        previous_bucket = previous.buckets.get(org)
        if previous_bucket is not None and previous_bucket.hash == bucket.hash:
            buckets[org] = previous_bucket
            entries.update((key, previous.entries[key]) for key in previous_bucket.members)
        else:
            entries.update((key, snapshot.entries[key]) for key in bucket.members)
    policies = {
        policy_hash: previous.policies.get(policy_hash, policy) for policy_hash, policy in snapshot.policies.items()
    }
    return replace(snapshot, entries=entries, policies=policies, buckets=buckets)
