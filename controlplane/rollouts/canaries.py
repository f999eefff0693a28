"""The two synthetic tenants of the isolation canary, as engines and gateways of one group have them. Pure.

They exist only in snapshots: without a row, a key that a client could present, a quota or an invoice. Their ids are not
numbers, so that they never equal an organisation's. Their prompts are cached in the format of most namespaces, for a
minute, in a small share of the pool, and give way to all others.
"""

import base64
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from engine_agent.contracts.protocol import CANARIES, Entry, Policy, Snapshot, policy_hash
from tenants.policy import BUILT_IN

EPOCH: Final = 2  # increase it whenever keys change: engines accept a new key only with a new epoch
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
_Formats = tuple[tuple[str, str], ...]  # (model, format): first "" for all models, then single ones


def canary_key(name: str) -> bytes:
    """Return the key of one tenant's namespace, different from the other tenant's and always the same.

    It need not be secret: prompts of canaries are random and belong to no customer, so a known key reveals nothing, and
    presenting one gets no service. It depends on no secret either: if that were replaced or restored, the key would
    change within its epoch, and engines would rightly refuse it.
    """
    return sha256(f"luminet isolation canary/{EPOCH}/{name}".encode()).digest()


def canary_entries(snapshot: Snapshot) -> tuple[Mapping[str, Entry], Mapping[str, Policy]]:
    """Return the tenants' entries and policies; none without namespaces, which leaves nothing to isolate."""
    if not snapshot.policies:
        return {}, {}
    policy = _policy(_usual_formats(snapshot))
    canary_hash = policy_hash(policy)
    entries: dict[str, Entry] = {}
    for name in CANARIES:
        key = base64.b64encode(canary_key(name)).decode()
        entries[f"org/{name}"] = {"org": name, "slug": f"luminet.{name}", "state": "active", "limits": {}}
        fields = {"slug": SLUG, "epoch": EPOCH, "key": key, "revision": 0, "policy": canary_hash}
        entries[f"ns/{name}"] = {"org": name, **fields}
    return entries, {canary_hash: policy}


def _usual_formats(snapshot: Snapshot) -> _Formats:
    """Return the formats of most namespaces: engines support them, and probes then test what customers rely on."""
    by_policy = {name: _formats(policy) for name, policy in snapshot.policies.items()}
    if len(set(by_policy.values())) == 1:  # the usual case, which needs no count
        return next(iter(by_policy.values()))
    namespaces = (entry for key, entry in snapshot.entries.items() if key.startswith("ns/"))
    counts = Counter(by_policy[entry["policy"]] for entry in namespaces)
    return max(counts, key=lambda formats: (counts[formats], formats))


def _formats(policy: Policy) -> _Formats:
    models: Mapping[str, Any] = policy.get("models") or {}
    model_formats = {model: values["kv_dtype"] for model, values in models.items() if "kv_dtype" in values}
    return (("", policy.get("kv_dtype", "fp8")), *sorted(model_formats.items()))


def _policy(formats: _Formats) -> Policy:
    (_, default_format), *models = formats
    policy: dict[str, Any] = {**KEPT, "kv_dtype": default_format}
    if models:
        policy["models"] = {model: {**KEPT, "kv_dtype": kv_dtype} for model, kv_dtype in models}
    return policy
