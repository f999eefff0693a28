"""The isolation canary's tenants in small, for engines and gateways of tests; with one key for both, where asked."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from engine_agent.contracts.protocol import CANARIES, policy_hash
from tests.gateway.snapshots import POLICY, Entries

KEYS: Mapping[str, bytes] = {name: name.encode().ljust(32, b"k") for name in CANARIES}


def same_key(name: str) -> bytes:
    """What must never be."""
    return KEYS[CANARIES[0]]


def canaries(key_of: Callable[[str], bytes] = KEYS.__getitem__, policy: Mapping[str, Any] = POLICY) -> Entries:
    found: Entries = {}
    for name in CANARIES:
        key = base64.b64encode(key_of(name)).decode()
        found[f"org/{name}"] = {"org": name, "slug": f"luminet.{name}", "state": "active", "limits": {}}
        own = {"slug": "canary", "epoch": 1, "key": key, "revision": 0, "policy": policy_hash(policy)}
        found[f"ns/{name}"] = {"org": name, **own}
    return found
