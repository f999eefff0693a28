"""The two synthetic tenants of the isolation canary, as engines and gateways of one group hold them. Pure.

They are in snapshots alone: no row, no key that a client could present, no quota, no invoice. Their ids are no numbers,
so that none is ever an organisation's. Their prompts are kept as most namespaces keep theirs, for a minute, in a small
share of the pool, and give way to everybody.
"""

import base64
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from engine_agent.contracts.protocol import CANARIES, Entry, Policy, Snapshot, policy_hash
from tenants.policy import BUILT_IN

EPOCH: Final = 2  # with whatever makes other keys, another one: engines take no new key without
SLUG: Final = "canary"
KEPT: Final[Mapping[str, Any]] = {
    **BUILT_IN,
    "ttl_seconds": 60,
    "ttl_mode": "absolute",
    "max_age_seconds": 60,
    "request_kv_dtypes": [],
    "limit_share": 0.05,
    "weight": 0.001,
}
_Formats = tuple[tuple[str, str], ...]  # of all models (""), then of single ones


def canary_key(name: str) -> bytes:
    """The key of one tenant's namespace: another than the other's, and the same for ever.

    It is no secret, and need not be: prompts of canaries are random and nobody's, so there is nothing that a known key
    could give away, and nobody is served by presenting one. So it depends on no secret either: with one that is
    replaced, or goes back to what it was, the key would change within its epoch, and engines would rightly refuse it.
    """
    return sha256(f"luminet isolation canary/{EPOCH}/{name}".encode()).digest()


def canary_entries(snapshot: Snapshot) -> tuple[Mapping[str, Entry], Mapping[str, Policy]]:
    """Nothing where nobody is served: there is nothing to keep apart."""
    if not snapshot.policies:
        return {}, {}
    policy = _policy(_usual_formats(snapshot))
    hashed = policy_hash(policy)
    entries: dict[str, Entry] = {}
    for name in CANARIES:
        key = base64.b64encode(canary_key(name)).decode()
        entries[f"org/{name}"] = {"org": name, "slug": f"luminet.{name}", "state": "active", "limits": {}}
        own = {"slug": SLUG, "epoch": EPOCH, "key": key, "revision": 0, "policy": hashed}
        entries[f"ns/{name}"] = {"org": name, **own}
    return entries, {hashed: policy}


def _usual_formats(snapshot: Snapshot) -> _Formats:
    """Those of most namespaces: an engine can do them, and what customers rely on is what is probed."""
    by_policy = {name: _formats(policy) for name, policy in snapshot.policies.items()}
    if len(set(by_policy.values())) == 1:  # as it mostly is: nobody is counted
        return next(iter(by_policy.values()))
    namespaces = (entry for key, entry in snapshot.entries.items() if key.startswith("ns/"))
    counts = Counter(by_policy[entry["policy"]] for entry in namespaces)
    return max(counts, key=lambda formats: (counts[formats], formats))


def _formats(policy: Policy) -> _Formats:
    models: Mapping[str, Any] = policy.get("models") or {}
    own = {model: one["kv_dtype"] for model, one in models.items() if "kv_dtype" in one}
    return (("", policy.get("kv_dtype", "fp8")), *sorted(own.items()))


def _policy(formats: _Formats) -> Policy:
    (_, general), *models = formats
    policy: dict[str, Any] = {**KEPT, "kv_dtype": general}
    if models:
        policy["models"] = {model: {**KEPT, "kv_dtype": one} for model, one in models}
    return policy
