"""Snapshots as an engine gets them, of namespaces that are named like their organisations."""

import base64
from collections.abc import Collection, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from engine_agent.contracts.protocol import Snapshot, policy_hash, snapshot_build

FORMATS = ("bf16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "k8v4", "int4", "nvfp4")  # that a policy may name
EXACT: Mapping[str, Any] = {"kv_dtype": "fp32", "request_kv_dtypes": ["fp32", *FORMATS], "ttl_seconds": 3600}
_NONE: Mapping[str, Any] = MappingProxyType({})


def make_snapshot(
    policies: Mapping[str, Mapping[str, Any]] = MappingProxyType({"one": {}}),
    *,
    epochs: Mapping[str, int] = _NONE,
    revisions: Mapping[str, int] = _NONE,
    pins: Mapping[str, str] = _NONE,
    suspended: Collection[str] = (),
) -> Snapshot:
    """`policies`: by namespace, what differs from `EXACT`. `pins`: the namespace of each."""
    entries: dict[str, Any] = {}
    documents: dict[str, Any] = {}
    for name, changed in policies.items():
        document = dict(EXACT) | dict(changed)
        documents[policy_hash(document)] = document
        epoch, state = epochs.get(name, 1), "suspended" if name in suspended else "active"
        entries[f"org/{name}"] = {"org": name, "slug": name, "state": state, "limits": {}}
        entries[f"ns/{name}"] = {
            "org": name,
            "slug": name,
            "epoch": epoch,
            "key": base64.b64encode(sha256(f"{name} {epoch}".encode()).digest()).decode(),
            "revision": revisions.get(name, 1),
            "policy": policy_hash(document),
        }
    for pin, name in pins.items():
        content = {"name": pin, "model": "model", "kind": "tokens", "bytes": 1, "expires_at": None}
        entries[f"pin/{pin}"] = {"org": name, "ns": name, **content}
    return snapshot_build("engine", entries, documents)
