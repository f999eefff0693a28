"""The applied snapshot: which namespaces the engine serves, and under which policies.

A snapshot is read as a whole before anything changes (`held.py`), outside the engine's thread if necessary. Then all of
it is applied between two steps: the block manager's namespaces, the revisions in responses, the pins.
"""

import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from engine_agent.cache.keys import KEY_BYTES
from engine_agent.cache.manager import BlockManager
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.cache.prefixes import PurgeReceipt
from engine_agent.contracts.protocol import Change, HashMismatch, Snapshot, change_apply
from engine_agent.engine.errors import UnknownTenant
from engine_agent.engine.held import Held, PinnedPrefix, SnapshotReader, Tenant

NOBODY = "luminet/nobody"  # the engine's own namespace; ids of snapshot entries have no slash


@dataclass(frozen=True, slots=True)
class Prepared:
    """A snapshot to apply next, and how it differs, for the block manager, from the one it was prepared against."""

    before: Held
    after: Held
    gone: tuple[str, ...]
    changed: tuple[Tenant, ...]


class Tenants:
    def __init__(
        self, manager: BlockManager, *, model: str, kv_formats: Collection[str], takes_unserved: bool = False
    ) -> None:
        """`takes_unserved`: see `SnapshotReader`."""
        self._manager = manager
        self._reader = SnapshotReader(model=model, kv_formats=kv_formats, takes_unserved=takes_unserved)
        self._held = Held.nothing()
        self._own = self._nobodys(next(iter(kv_formats)))

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._held.tenants.values())

    @property
    def snapshot(self) -> Snapshot:
        return self._held.snapshot

    @property
    def pins(self) -> Mapping[str, PinnedPrefix]:
        return self._held.pins

    def tenant(self, namespace: str) -> Tenant:
        """Return an active tenant. Raises UnknownTenant."""
        tenant = self.known(namespace)
        if tenant is None or not tenant.is_active:
            raise UnknownTenant("", "this engine serves no such namespace, or its organisation is suspended")
        return tenant

    def known(self, namespace: str) -> Tenant | None:
        return self._own if namespace == NOBODY else self._held.tenants.get(namespace)

    def prepare(self, update: Snapshot | Change) -> Prepared:
        """Read a snapshot against the applied one. Changes nothing, so any thread may call this.

        Raises RejectedSnapshot, HashMismatch, MalformedMessage.
        """
        previous = self._held
        snapshot = change_apply(previous.snapshot, update) if isinstance(update, Change) else update
        current = self._reader.read(snapshot, previous)
        changed = (tenant for name, tenant in current.tenants.items() if _differs(previous.tenants.get(name), tenant))
        return Prepared(previous, current, tuple(previous.tenants.keys() - current.tenants.keys()), tuple(changed))

    def obey(self, prepared: Prepared) -> list[PurgeReceipt]:
        """Apply a prepared snapshot and return the receipts of its purges.

        Raises HashMismatch, without any change, if another snapshot was applied meanwhile.
        """
        if prepared.before is not self._held:
            raise HashMismatch(expected=prepared.before.snapshot.hash, found=self.snapshot.hash)
        receipts = [self._manager.remove_namespace(namespace) for namespace in prepared.gone]
        for tenant in prepared.changed:
            receipt = self._manager.set_namespace(
                tenant.namespace, key=tenant.key, epoch=tenant.epoch, policy=tenant.policy
            )
            receipts += [receipt] if receipt else []
        self._held = prepared.after
        return receipts

    def apply(self, update: Snapshot | Change) -> list[PurgeReceipt]:
        """Prepare and apply at once, for callers that need no second thread."""
        return self.obey(self.prepare(update))

    def _nobodys(self, kv_format: str) -> Tenant:
        """Add a namespace for the engine's own health check, without caching."""
        policy = NamespacePolicy(prefix_caching=False, kv_dtype=kv_format, request_kv_dtypes=())
        internal_tenant = Tenant(NOBODY, NOBODY, NOBODY, NOBODY, True, 0, 0, secrets.token_bytes(KEY_BYTES), policy)
        self._manager.set_namespace(NOBODY, key=internal_tenant.key, epoch=0, policy=policy)
        return internal_tenant


def _differs(previous: Tenant | None, current: Tenant) -> bool:
    """Return whether the block manager must be updated: names and revisions do not matter to it."""
    if previous is current:
        return False
    return previous is None or (previous.epoch, previous.policy) != (current.epoch, current.policy)
