"""A snapshot as this engine reads it: which namespaces it serves, under which policies and with which pins.

Reading changes nothing and takes time, so it may run outside the engine's thread. Entries that are unchanged since the
previous snapshot are not read again: the result contains the same objects.
"""

import base64
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine_agent.cache.errors import InvalidValue
from engine_agent.cache.policy import NamespacePolicy
from engine_agent.contracts.protocol import Bucket, Entry, Snapshot, snapshot_build
from engine_agent.engine.errors import BadRequest, RejectedSnapshot

ACTIVE = "active"
_NO_BUCKET = Bucket(b"", {}, frozenset())


@dataclass(frozen=True, slots=True)
class Tenant:
    """One namespace that this engine serves."""

    namespace: str  # its id
    slug: str
    organisation_id: str
    organisation: str
    is_active: bool
    revision: int
    epoch: int
    key: bytes = field(repr=False)
    policy: NamespacePolicy = field(default_factory=NamespacePolicy)

    def kv_format(self, requested: str | None, served: Collection[str]) -> str:
        """Return the KV format of a request. Raises BadRequest."""
        allowed = (self.policy.kv_dtype, *self.policy.request_kv_dtypes)
        if requested is not None and requested not in allowed:
            raise BadRequest("kv_cache_dtype", f"{requested!r} is none of {', '.join(dict.fromkeys(allowed))}")
        chosen = requested or self.policy.kv_dtype
        if chosen not in served:
            raise BadRequest("kv_cache_dtype", f"{chosen!r} is not served here, only {', '.join(served)}")
        return chosen


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    pin_id: str
    namespace: str
    name: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Held:
    """A snapshot and its meaning for this engine. Immutable, so any thread may read it."""

    snapshot: Snapshot
    tenants: Mapping[str, Tenant]
    pins: Mapping[str, PinnedPrefix]
    strays: Mapping[str, PinnedPrefix]  # of namespaces that are not here, as possible while an organisation is removed

    @classmethod
    def nothing(cls) -> "Held":
        return cls(snapshot_build("engine", {}, {}), {}, {}, {})


class SnapshotReader:
    def __init__(self, *, model: str, kv_formats: Collection[str], takes_unserved: bool = False) -> None:
        """`takes_unserved`: accept a namespace with a KV format that only other engines serve.

        Its requests are then refused, its snapshot is not.
        """
        self._model = model
        self._kv_formats = tuple(kv_formats)
        self._takes_unserved = takes_unserved

    def read(self, snapshot: Snapshot, previous: Held) -> Held:
        """Return the snapshot's tenants and pins, with unchanged ones from `previous`. Raises RejectedSnapshot."""
        if snapshot.kind != "engine":
            raise RejectedSnapshot("kind", f"{snapshot.kind} is not engine")
        tenants, pins = dict(previous.tenants), {**previous.pins, **previous.strays}
        for key in previous.snapshot.entries.keys() - snapshot.entries.keys():
            prefix, _, one_id = key.partition("/")
            if prefix == "ns":
                del tenants[one_id]
            if prefix == "pin":
                del pins[one_id]
        policies: dict[str, NamespacePolicy] = {}
        for key in _differing(previous.snapshot, snapshot):
            prefix, _, one_id = key.partition("/")
            if prefix == "ns":
                tenants[one_id] = self._tenant(key, snapshot, previous.tenants.get(one_id), policies)
            if prefix == "pin":
                pins[one_id] = _pin(one_id, snapshot.entries[key])
        _together_checked(tenants)
        tenant_pins = {pin_id: pin for pin_id, pin in pins.items() if pin.namespace in tenants}
        return Held(
            snapshot, tenants, tenant_pins, {pin_id: pins[pin_id] for pin_id in pins.keys() - tenant_pins.keys()}
        )

    def _tenant(
        self, key: str, snapshot: Snapshot, previous_tenant: Tenant | None, policies: dict[str, NamespacePolicy]
    ) -> Tenant:
        """Return the tenant of an entry. `policies`: those already read, by hash."""
        entry = snapshot.entries[key]
        organisation = snapshot.entries.get(f"org/{entry['org']}")
        if organisation is None:
            raise RejectedSnapshot(key, f"its organisation org/{entry['org']} is not in the snapshot")
        secret = base64.b64decode(entry["key"])
        if previous_tenant and entry["epoch"] < previous_tenant.epoch:
            raise RejectedSnapshot(
                key, f"epoch {entry['epoch']} is before {previous_tenant.epoch}: epochs never go back"
            )
        if previous_tenant and entry["epoch"] == previous_tenant.epoch and secret != previous_tenant.key:
            raise RejectedSnapshot(key, f"another key for epoch {previous_tenant.epoch}: a new key needs a new epoch")
        if entry["policy"] not in policies:
            policies[entry["policy"]] = self._policy(key, snapshot.policies[entry["policy"]])
        return Tenant(
            namespace=key[3:],
            slug=entry["slug"],
            organisation_id=entry["org"],
            organisation=organisation["slug"],
            is_active=organisation["state"] == ACTIVE,
            revision=entry["revision"],
            epoch=entry["epoch"],
            key=secret,
            policy=policies[entry["policy"]],
        )

    def _policy(self, key: str, document: Mapping[str, Any]) -> NamespacePolicy:
        """Return the policy for this model, or else the one for all models."""
        models = document.get("models")
        of_model = models.get(self._model) if isinstance(models, Mapping) else None
        try:
            policy = NamespacePolicy.from_effective(of_model if isinstance(of_model, Mapping) else document)
        except InvalidValue as problem:
            raise RejectedSnapshot(f"{key}.policy", str(problem)) from problem
        if policy.kv_dtype not in self._kv_formats and not self._takes_unserved:
            served = ", ".join(self._kv_formats)
            raise RejectedSnapshot(f"{key}.policy.kv_dtype", f"{policy.kv_dtype!r} is not served here, only {served}")
        return policy


def _differing(previous: Snapshot, current: Snapshot) -> Iterator[str]:
    """Iterate over the entries of `current` that changed since `previous`: all of an organisation's if that changed."""
    for organisation, bucket in current.buckets.items():
        old = previous.buckets.get(organisation, _NO_BUCKET)
        if old.hash == bucket.hash:
            continue
        organisation_key = f"org/{organisation}"
        is_another = old.members.get(organisation_key) != bucket.members.get(organisation_key)
        for key, digest in bucket.members.items():
            if is_another or old.members.get(key) != digest:
                yield key


def _together_checked(tenants: Mapping[str, Tenant]) -> None:
    reserved_share = math.fsum(tenant.policy.reserved_share + tenant.policy.pin_share for tenant in tenants.values())
    if reserved_share > 1:
        raise RejectedSnapshot("policies", f"reservations and pins are {reserved_share:.0%} of the pool together")


def _pin(pin_id: str, entry: Entry) -> PinnedPrefix:
    expires_at = entry["expires_at"]
    return PinnedPrefix(pin_id, entry["ns"], entry["name"], datetime.fromisoformat(expires_at) if expires_at else None)
