"""Snapshots from namespaces' names and policies, for a vLLM without a control plane.

Pure. Keys and epochs are created here, so they are unknown outside: an engine that restarts has other keys and an empty
cache.
"""

import base64
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engine_agent.cache.errors import InvalidValue
from engine_agent.cache.keys import KEY_BYTES
from engine_agent.cache.policy import POLICY_FIELDS, NamespacePolicy
from engine_agent.contracts.protocol import Entry, Policy, Snapshot, policy_hash, snapshot_build
from engine_agent.engine.errors import BadRequest

LOCAL = "local"  # the organisation of all of them; those of a control plane are numbers
Namespaces = Mapping[str, Policy]


def named_snapshot(snapshot: Snapshot, desired: Namespaces, *, kv_formats: Sequence[str]) -> Snapshot:
    """Return a snapshot with exactly these namespaces. Existing ones keep key and epoch, and so their blocks.

    Raises BadRequest, MalformedMessage.
    """
    policies = {name: _policy(name, policy, kv_formats) for name, policy in desired.items()}
    entries: dict[str, Entry] = {name: _entry(snapshot, name, policy) for name, policy in policies.items()}
    return _snapshot(entries, {policy_hash(policy): policy for policy in policies.values()})


def purged_snapshot(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Return the snapshot with a new epoch and key for these namespaces, or all if none is named. Raises BadRequest."""
    entries = {key.removeprefix("ns/"): entry for key, entry in snapshot.entries.items() if key.startswith("ns/")}
    if any(entry["org"] != LOCAL for entry in entries.values()):
        raise BadRequest("namespaces", "came by a snapshot: there a purge is a snapshot with a higher epoch")
    if unknown := sorted(set(names) - entries.keys()):
        raise BadRequest("namespaces", f"{unknown[0][:80]!r} is no namespace here")
    for name in names or entries:
        entries[name] = {**entries[name], "epoch": entries[name]["epoch"] + 1, "key": _key()}
    return _snapshot(entries, snapshot.policies)


def _snapshot(entries: Mapping[str, Entry], policies: Mapping[str, Policy]) -> Snapshot:
    organisation = {"org": LOCAL, "slug": LOCAL, "state": "active", "limits": {}}
    namespaces = {f"ns/{name}": entry for name, entry in entries.items()}
    return snapshot_build("engine", {f"org/{LOCAL}": organisation, **namespaces}, policies)


def _entry(snapshot: Snapshot, name: str, policy: Policy) -> dict[str, Any]:
    previous_entry, new_hash = snapshot.entries.get(f"ns/{name}"), policy_hash(policy)
    entry_fields = {"org": LOCAL, "slug": name, "policy": new_hash}
    if previous_entry is None:
        return {**entry_fields, "epoch": 0, "key": _key(), "revision": 1}
    revision = previous_entry["revision"] + (previous_entry["policy"] != new_hash)
    return {**entry_fields, "epoch": previous_entry["epoch"], "key": previous_entry["key"], "revision": revision}


def _policy(name: str, explicit_policy: Policy, kv_formats: Sequence[str]) -> Policy:
    """Return the policy as in a snapshot. Raises BadRequest."""
    field_path = f"namespaces.{name[:80]}"
    if not isinstance(explicit_policy, Mapping):
        raise BadRequest(field_path, "must be an object of policy fields, {} for the built-in ones")
    for unknown in sorted(explicit_policy.keys() - set(POLICY_FIELDS)):
        raise BadRequest(f"{field_path}.{unknown[:80]}", f"is none of {', '.join(POLICY_FIELDS)}")
    policy = {"kv_dtype": kv_formats[0], **explicit_policy}
    try:
        NamespacePolicy.from_effective(policy)
    except InvalidValue as problem:
        raise BadRequest(f"{field_path}.{problem.field}", problem.message) from problem
    if policy["kv_dtype"] not in kv_formats:
        served = ", ".join(kv_formats)
        raise BadRequest(f"{field_path}.kv_dtype", f"{policy['kv_dtype']!r} is not served here, only {served}")
    return {field: None if value == math.inf else value for field, value in policy.items()}  # null: no bound


def _key() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
