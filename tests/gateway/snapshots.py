"""What a gateway may hold, in small: snapshots with two organisations, their keys, and engines."""

import base64
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from engine_agent.contracts.protocol import Snapshot, policy_hash, snapshot_build

CHECK = b"c" * 32
SECRETS = {f"agent-{number}": base64.b64encode(str(number).encode() * 32).decode() for number in range(1, 8)}
KEY, FOREIGN, BOUND, EXPIRED, READING, SLEEPING = "lk_acme", "lk_globex", "lk_bound", "lk_old", "lk_reads", "lk_sleeps"
POLICY: Mapping[str, Any] = {"kv_dtype": "bf16", "request_kv_dtypes": ["int4", "fp8"]}
MODEL = "demo"

Entries = dict[str, Any]


def digest(key: str) -> bytes:
    return hmac.digest(CHECK, key.encode(), "sha256")


def organisation(org: str, slug: str, state: str = "active") -> Entries:
    return {f"org/{org}": {"org": org, "slug": slug, "state": state, "limits": {"requests_per_minute": 600_000}}}


def namespace(ns: str, org: str, slug: str, policy: Mapping[str, Any] = POLICY, *, revision: int = 7) -> Entries:
    secret = base64.b64encode(ns.encode().ljust(32, b"k")).decode()
    told = {"org": org, "slug": slug, "epoch": 0, "key": secret, "revision": revision, "policy": policy_hash(policy)}
    return {f"ns/{ns}": told}


def key(
    name: str,
    org: str,
    namespaces: Sequence[str] | None = None,
    *,
    scopes: Sequence[str] = ("infer",),
    expires_at: str | None = None,
) -> Entries:
    bound = None if namespaces is None else list(namespaces)
    told = {"org": org, "hash": digest(name).hex(), "namespaces": bound, "scopes": list(scopes)}
    return {f"key/{name.replace('.', '-')}": {**told, "expires_at": expires_at}}


def route(
    agent: str,
    address: str = "http://127.0.0.1:9",
    kv_dtypes: Sequence[str] = ("bf16", "fp8", "int4"),
    *,
    models: Sequence[str] = (MODEL,),
    state: str = "active",
    context_tokens: int = 2_048,
) -> Entries:
    model = {"revision": "r1", "backend": "paged", "kv_dtypes": list(kv_dtypes), "context_tokens": context_tokens}
    told = {"agent": agent, "address": address, "models": dict.fromkeys(models, model), "identity": SECRETS[agent]}
    return {f"route/{agent}": {"org": "fleet", **told, "state": state}}


def gate(refused: Mapping[str, str], model: str = MODEL) -> Entries:
    return {"gate/demo": {"org": "fleet", "model": model, "refused": dict(refused)}}


def split(
    agents: Sequence[str], share: float, namespaces: Sequence[str] | None = None, *, name: str = "1", org: str = "fleet"
) -> Entries:
    bound = None if namespaces is None else list(namespaces)
    return {f"split/{name}": {"org": org, "namespaces": bound, "agents": list(agents), "share": share}}


def tenants() -> Entries:
    """acme with two namespaces and several keys, globex with one, and one that is suspended."""
    return {
        **organisation("1", "acme"),
        **namespace("11", "1", "default"),
        **namespace("12", "1", "batch", revision=3),
        **key(KEY, "1"),
        **key(BOUND, "1", ["12"]),
        **key(EXPIRED, "1", expires_at="2026-01-01T00:00:00Z"),
        **key(READING, "1", scopes=["stats"]),
        **organisation("2", "globex"),
        **namespace("21", "2", "default"),
        **key(FOREIGN, "2"),
        **organisation("3", "initech", "suspended"),
        **namespace("31", "3", "default"),
        **key(SLEEPING, "3"),
    }


def many_tenants(organisations: int, each: int) -> tuple[Entries, list[Mapping[str, Any]]]:
    """Organisations, each with a policy of its own and so many namespaces and keys; and the policies."""
    entries: Entries = {}
    policies: list[Mapping[str, Any]] = [{**POLICY, "ttl_seconds": 600 + number} for number in range(organisations)]
    for number, policy in enumerate(policies, 1_000):
        entries |= organisation(str(number), f"org-{number}")
        for place in range(each):
            name = f"{number}{place:03d}"
            entries |= namespace(name, str(number), f"namespace-{place}" if place else "default", policy)
            entries |= key(f"lmk_{name:0>49}", str(number))
    return entries, policies


def gateway_snapshot(*entries: Entries, policies: Sequence[Mapping[str, Any]] = (POLICY,)) -> Snapshot:
    told = {name: entry for some in entries for name, entry in some.items()}
    return snapshot_build("gateway", told, {policy_hash(policy): policy for policy in policies})


def engine_snapshot(*entries: Entries, policies: Sequence[Mapping[str, Any]] = (POLICY,)) -> Snapshot:
    """What engines hold of the same tenants."""
    told = {name: entry for some in entries for name, entry in some.items() if name.startswith(("org/", "ns/"))}
    plain = {name: {**entry, "limits": {}} if name.startswith("org/") else entry for name, entry in told.items()}
    return snapshot_build("engine", plain, {policy_hash(policy): policy for policy in policies})
