"""Snapshots, the changes between them, the names of queues, and the broker's address.

Control plane and data plane share this module, `wire.py` and `sealing.py`, so it needs only the standard library. A
snapshot is the desired state of one agent, under one hash; `snapshot_build`, `snapshot_decode` and `change_apply`
return only well-formed ones.

Other modules seal, sign, send and apply snapshots and interpret policies: here a policy is an object with a hash.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from engine_agent.contracts.strict_json import UnsafeJson, members

FORMAT = 1
# Organisations, and each one's namespace, of isolation probes; no customer owns them.
CANARIES = ("canary-a", "canary-b")
FLEET = "fleet"  # stands for the organisation of entries without one: routes, gates. Organisations' ids are numbers
MAX_CHANGE_BYTES = 65_536  # a longer sealed change is not sent: the agent pulls the snapshot instead

AgentKind = Literal["engine", "gateway"]
Entry = Mapping[str, Any]
Policy = Mapping[str, Any]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ProtocolError(Exception):
    """The base class of this module's errors. No message quotes a value, which may be a namespace's key."""


class MalformedMessage(ProtocolError):
    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class HashMismatch(ProtocolError):
    """The change was made for another state, or its result has another hash: pull the whole snapshot."""

    def __init__(self, *, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        super().__init__(f"expected snapshot {expected}, found {found}")


@dataclass(frozen=True, slots=True)
class Bucket:
    """One organisation's entries: their hashes by key, the hash over those, and the policies they refer to."""

    hash: bytes
    members: Mapping[str, bytes]
    policies: frozenset[str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The desired state of one agent. Equal hashes mean equal snapshots."""

    kind: AgentKind
    hash: str
    entries: Mapping[str, Entry] = field(repr=False, compare=False)
    policies: Mapping[str, Policy] = field(repr=False, compare=False)
    buckets: Mapping[str, Bucket] = field(repr=False, compare=False)

    def replaced(
        self,
        *,
        put: Mapping[str, Entry] = _NOTHING,
        drop: Iterable[str] = (),
        policies: Mapping[str, Policy] = _NOTHING,
    ) -> "Snapshot":
        """Return the snapshot after a change, recomputing only the organisations that it touches."""
        hashes = {key: _entry_checked(self.kind, key, entry) for key, entry in put.items()}
        entries = dict(self.entries)
        removed = [(key, entries.pop(key)["org"]) for key in {*drop, *put} if key in entries]
        entries.update(put)
        touched = {org for _, org in removed} | {entry["org"] for entry in put.values()}
        members = {org: dict(self.buckets[org].members) if org in self.buckets else {} for org in touched}
        for key, org in removed:
            del members[org][key]
        for key, entry in put.items():
            members[entry["org"]][key] = hashes[key]
        changed = {org: _bucket(hashes_by_key, entries) for org, hashes_by_key in members.items() if hashes_by_key}
        buckets = {org: bucket for org, bucket in self.buckets.items() if org not in touched} | changed
        known_policies = {**self.policies, **_policies_checked(policies)}
        return Snapshot(
            self.kind, root_hash(self.kind, buckets), entries, _referenced(buckets, known_policies), buckets
        )


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between the snapshot with the hash `base` and the one with the hash `target`."""

    kind: AgentKind
    base: str
    target: str
    put: Mapping[str, Entry] = field(repr=False)
    drop: tuple[str, ...]
    policies: Mapping[str, Policy] = field(repr=False)  # those of `target` that `base` lacks


def queue_name(agent_id: str) -> str:
    """Return the name of the queue for commands to one agent."""
    return f"agent.{agent_id}"


def broker_url_verified(url: str) -> str:
    """Return the URL with certificate verification, which Celery's transport omits unless the URL asks for it."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query)
    if parts.scheme != "rediss" or "ssl_cert_reqs" in dict(options):
        return url
    return urlunsplit(parts._replace(query=urlencode([*options, ("ssl_cert_reqs", "required")])))


# Hashes: sha256 over the entry, over its organisation's entries, over all organisations. Order does not matter.


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> bytes:
    """Encode a value as JSON so that equal values have equal bytes on every machine."""
    return _CANONICAL.encode(value).encode()


def policy_hash(policy: Policy) -> str:
    """Return a policy's hash: agents acknowledge it, and namespaces with the same policy share it."""
    return sha256(canonical_json(policy)).hexdigest()


def entry_hash(key: str, entry: Entry) -> bytes:
    return sha256(key.encode() + b"\0" + canonical_json(entry)).digest()


def bucket_hash(members: Mapping[str, bytes]) -> bytes:
    return sha256(b"".join(members[key] for key in sorted(members))).digest()


def root_hash(kind: AgentKind, buckets: Mapping[str, Bucket]) -> str:
    bucket_hashes = (org.encode() + b"\0" + buckets[org].hash for org in sorted(buckets))
    return sha256(b"luminet snapshot %d\0%s\0" % (FORMAT, kind.encode()) + b"".join(bucket_hashes)).hexdigest()


def _bucket(members: Mapping[str, bytes], entries: Mapping[str, Entry]) -> Bucket:
    namespaces = [entries[key] for key in members if key.startswith("ns/")]
    policies = {namespace["policy"] for namespace in namespaces}
    return Bucket(bucket_hash(members), members, frozenset(policies))


def _referenced(buckets: Mapping[str, Bucket], policies: Mapping[str, Policy]) -> Mapping[str, Policy]:
    referenced: frozenset[str] = frozenset().union(*(bucket.policies for bucket in buckets.values()))
    for missing in sorted(referenced - policies.keys()):
        raise MalformedMessage(f"policies.{missing}", "is missing, but a namespace refers to it")
    return {policy_hash: policies[policy_hash] for policy_hash in referenced}


# Snapshots and changes.


def snapshot_build(kind: AgentKind, entries: Mapping[str, Entry], policies: Mapping[str, Policy]) -> Snapshot:
    """Build a snapshot with the policies that its entries refer to. The entries must not be altered afterwards."""
    empty = Snapshot(kind, root_hash(kind, {}), {}, {}, {})
    return empty.replaced(put=entries, policies=policies)


def change_between(before: Snapshot, after: Snapshot) -> Change:
    """Return the smallest change from one snapshot to the other. It compares hashes, so 1 and 1.0 differ."""
    assert before.kind == after.kind
    none = Bucket(b"", {}, frozenset())
    put: dict[str, Entry] = {}
    for org, new in after.buckets.items():
        old = before.buckets.get(org, none)
        if old.hash != new.hash:
            put |= {key: after.entries[key] for key, digest in new.members.items() if old.members.get(key) != digest}
    drop = tuple(sorted(before.entries.keys() - after.entries.keys()))
    policies = {
        policy_hash: after.policies[policy_hash] for policy_hash in after.policies.keys() - before.policies.keys()
    }
    return Change(after.kind, before.hash, after.hash, put, drop, policies)


def change_apply(snapshot: Snapshot, change: Change) -> Snapshot:
    """Return the snapshot after the change. Raise ProtocolError. The given snapshot does not change."""
    if snapshot.hash != change.base:
        raise HashMismatch(expected=change.base, found=snapshot.hash)
    target = snapshot.replaced(put=change.put, drop=change.drop, policies=change.policies)
    if target.hash != change.target:
        raise HashMismatch(expected=change.target, found=target.hash)
    return target


# Encoding and decoding.


def snapshot_encode(snapshot: Snapshot) -> bytes:
    content = {"entries": snapshot.entries, "policies": snapshot.policies}
    return canonical_json({"format": FORMAT, "kind": snapshot.kind, "hash": snapshot.hash, **content})


def snapshot_decode(message: bytes) -> Snapshot:
    """Decode a snapshot. Raise MalformedMessage with the wrong field."""
    document = _message(message, {"hash": _HASH, "entries": _OBJECT, "policies": _OBJECT})
    snapshot = snapshot_build(document["kind"], document["entries"], document["policies"])
    if snapshot.hash != document["hash"]:
        raise MalformedMessage("hash", f"is {document['hash']}, but the content's hash is {snapshot.hash}")
    return snapshot


def change_encode(change: Change) -> bytes:
    content = {"put": change.put, "drop": change.drop, "policies": change.policies}
    hashes = {"base": change.base, "target": change.target}
    return canonical_json({"format": FORMAT, "kind": change.kind, **hashes, **content})


def change_decode(message: bytes) -> Change:
    """Decode a change. Raise MalformedMessage. Only `change_apply` can check that it leads to its target."""
    document = _message(message, {"base": _HASH, "target": _HASH, "put": _OBJECT, "drop": _TEXTS, "policies": _OBJECT})
    for key, entry in document["put"].items():
        _entry_checked(document["kind"], key, entry)
    for key in document["drop"]:
        _key_checked(document["kind"], key)
    _policies_checked(document["policies"])
    return Change(
        document["kind"],
        document["base"],
        document["target"],
        document["put"],
        tuple(document["drop"]),
        document["policies"],
    )


def news_decode(message: bytes) -> Snapshot | Change:
    """Decode a snapshot, or a change to the applied one. Raise MalformedMessage."""
    try:
        return snapshot_decode(message)
    except MalformedMessage as problem:
        if (problem.field, problem.problem) != ("hash", "is missing"):
            raise
        return change_decode(message)


# Well-formed messages. An unknown field is an error, because an agent must apply a state as a whole. So is an entry of
# an unknown kind, unless it is marked optional (OPTIONAL: true): an agent that does not know its kind stores and hashes
# it with the rest, and ignores its content.

Check = tuple[Callable[[Any], bool], str]  # the check, and the requirement for its error message


def _text_like(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern, re.ASCII | re.DOTALL)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _every(is_good: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_good, value))


def _is_namespace_key(value: Any) -> bool:
    if not _is_base64_of_32(value):
        return False
    # Otherwise one key could be written in several ways.
    return bool(base64.b64encode(base64.b64decode(value)).decode() == value)


def _is_instant(value: Any) -> bool:
    try:
        return _is_utc(value) and bool(datetime.fromisoformat(value))
    except ValueError:  # for example the 30th of February
        return False


_is_id = _text_like(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_is_prefix = _text_like(r"[a-z][a-z_]{0,31}")
_is_text = _text_like(r".+")
_is_hash = _text_like(r"[0-9a-f]{64}")
_is_base64_of_32 = _text_like(r"[A-Za-z0-9+/]{43}=")
_is_utc = _text_like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")

_ID: Check = (_is_id, "must be an id: up to 64 letters, digits, - and _")
_IDS: Check = (lambda value: value is None or _every(_is_id)(value), "must be null or a list of ids")
_TEXT: Check = (_is_text, "must be text, and not empty")
_TEXTS: Check = (_every(_is_text), "must be a list of texts, none empty")
_COUNT: Check = (lambda value: type(value) is int and 0 <= value < 2**63, "must be a whole number from 0 to 2⁶³ - 1")
_RATIO: Check = (lambda value: type(value) in (int, float) and 0 <= value <= 1, "must be a number from 0 to 1")
_HASH: Check = (_is_hash, "must be a sha256 in 64 small hexadecimal digits")
_SECRET: Check = (_is_namespace_key, "must be 32 bytes in base64")
_INSTANT: Check = (lambda value: value is None or _is_instant(value), "must be null or like 2026-01-31T23:59:59Z")
_OBJECT: Check = (lambda value: isinstance(value, dict), "must be an object")
_KIND: Check = (lambda value: value in ("engine", "gateway"), "must be engine or gateway")

_NAMESPACE = {"slug": _TEXT, "epoch": _COUNT, "key": _SECRET, "revision": _COUNT, "policy": _HASH}
# A pin's content never changes and may be large: agents fetch it once by the pin's id.
_PIN = {"name": _TEXT, "model": _TEXT, "kind": _TEXT, "bytes": _COUNT, "expires_at": _INSTANT}
# For a gateway: an engine that it may send requests to, and the secret with which that engine verifies its identities.
_ROUTE = {"agent": _ID, "address": _TEXT, "models": _OBJECT, "identity": _SECRET, "state": _TEXT}
# The formats of a model that failed its quality gate, each with the reason; and the share of requests by agent while a
# policy is tried.
_GATE = {"model": _TEXT, "refused": _OBJECT}
_SPLIT = {"namespaces": _IDS, "agents": _TEXTS, "share": _RATIO}
_DOORS = {"gateways": _TEXTS}  # all gateways: they divide organisations' limits and share the canary's work
_FIELDS: Mapping[str, Mapping[str, Check]] = {
    "org": {"org": _ID, "slug": _TEXT, "state": _TEXT, "limits": _OBJECT},
    "ns": {"org": _ID, **_NAMESPACE},
    "pin": {"org": _ID, "ns": _ID, **_PIN},
    "key": {"org": _ID, "hash": _HASH, "namespaces": _IDS, "scopes": _TEXTS, "expires_at": _INSTANT},
    "route": {"org": _ID, **_ROUTE},
    "gate": {"org": _ID, **_GATE},
    "split": {"org": _ID, **_SPLIT},
    "doors": {"org": _ID, **_DOORS},
}
OPTIONAL = "optional"
_PREFIXES: Mapping[AgentKind, tuple[str, ...]] = {
    "engine": ("org", "ns", "pin"),
    "gateway": ("org", "ns", "key", "route", "gate", "split", "doors"),
}


def _message(message: bytes, fields: Mapping[str, Check]) -> dict[str, Any]:
    try:
        document = json.loads(message.decode(), object_pairs_hook=members)
    except UnsafeJson as repeated:
        raise MalformedMessage(_shown(str(repeated.path[-1])), "stands twice in one object") from None
    except (ValueError, RecursionError):
        raise MalformedMessage("message", "is not JSON in UTF-8, or nested too deeply") from None
    if not isinstance(document, dict):
        raise MalformedMessage("message", "must be an object")
    # First: another format has other fields.
    if type(document.get("format")) is not int or document["format"] != FORMAT:
        raise MalformedMessage("format", f"must be {FORMAT}: this side knows no other")
    _fields_checked("", document, {"format": _COUNT, "kind": _KIND, **fields})
    return document


def _shown(name: str) -> str:
    return ascii(name[:80])[1:-1]


def _fields_checked(where: str, value: Mapping[str, Any], fields: Mapping[str, Check]) -> None:
    for name, (is_good, requirement) in fields.items():
        if name not in value:
            raise MalformedMessage(where + name, "is missing")
        if not is_good(value[name]):
            raise MalformedMessage(where + name, requirement)
    for name in value.keys() - fields.keys():
        raise MalformedMessage(where + _shown(name), "is not a field we know")


def _key_checked(kind: AgentKind, key: str) -> str:
    """Return the entry's kind, which may be unknown.

    Raise MalformedMessage if it belongs to the other kind of agent.
    """
    prefix, _, entry_id = key.partition("/")
    is_ours = prefix in _PREFIXES[kind] or (prefix not in _FIELDS and _is_prefix(prefix))
    if not is_ours or not _is_id(entry_id):
        raise _misnamed(kind, key)
    return prefix


def _misnamed(kind: AgentKind, key: str) -> MalformedMessage:
    prefixes = ", ".join(f"{prefix}/…" for prefix in _PREFIXES[kind])
    return MalformedMessage(_shown(key), f"is not the name of an entry of this kind of agent: {prefixes}")


def _entry_checked(kind: AgentKind, key: str, entry: Entry) -> bytes:
    """Check that the entry is well-formed and return its hash."""
    prefix = _key_checked(kind, key)
    if not isinstance(entry, dict):
        raise MalformedMessage(key, "must be an object")
    if prefix in _FIELDS:
        _fields_checked(f"{key}.", entry, _FIELDS[prefix])
    elif entry.get(OPTIONAL) is not True:
        raise _misnamed(kind, key)
    elif not _is_id(entry.get("org")):
        raise MalformedMessage(f"{key}.org", _ID[1])
    if prefix == "org" and key != f"org/{entry['org']}":
        raise MalformedMessage(f"{key}.org", "must be the organisation's own id")
    try:
        return entry_hash(key, entry)
    except (ValueError, RecursionError):
        raise MalformedMessage(key, "holds a number that is not finite, or is nested too deeply") from None


def _policies_checked(policies: Mapping[str, Policy]) -> Mapping[str, Policy]:
    for claimed_hash, policy in policies.items():
        try:
            is_right = isinstance(policy, dict) and policy_hash(policy) == claimed_hash
        except (ValueError, RecursionError):
            is_right = False
        if not is_right:
            raise MalformedMessage(f"policies.{_shown(claimed_hash)}", "is not the hash of the policy beside it")
    return policies
