"""A gateway's snapshot as requests need it: the owners of keys, the engines, and the formats that may not be used.

A snapshot is parsed as a whole or not at all, and never altered, so that a request sees one consistent state. Parts
that are equal in the previous snapshot are not parsed again: the cost depends on the size of the change.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from engine_agent.contracts.protocol import FLEET, Bucket, Entry, Policy, Snapshot, snapshot_build

ACTIVE = "active"  # the state of an organisation that is served, and of an engine that takes requests
DEFAULT_FORMAT, DEFAULT_ASKED = "fp8", ("int4",)  # the product's defaults, for a policy without the field
_NO_BUCKET = Bucket(b"", {}, frozenset())


class BadTables(Exception):
    """A snapshot by which requests cannot be served; names the entry. The previous snapshot stays in use."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"{entry}: {problem}")


@dataclass(frozen=True, slots=True)
class Formats:
    """The KV format of a namespace, and those that its requests may choose."""

    kv_dtype: str = DEFAULT_FORMAT
    request_kv_dtypes: tuple[str, ...] = DEFAULT_ASKED

    @property
    def allowed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.kv_dtype, *self.request_kv_dtypes)))


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of a policy that decides where a request goes."""

    general: Formats
    models: Mapping[str, Formats]

    def of(self, model: str) -> Formats:
        return self.models.get(model, self.general)


@dataclass(frozen=True, slots=True)
class Namespace:
    id: str
    slug: str
    revision: int
    rules: Rules
    epoch: int = 0
    key: bytes = field(default=b"", repr=False)  # key of its chains, so that no other namespace has the same block keys


@dataclass(frozen=True, slots=True)
class Split:
    """A policy on trial: exactly `share` of these namespaces' requests go to these agents."""

    id: str
    namespaces: frozenset[str] | None  # None: all
    agents: frozenset[str]
    share: float


@dataclass(frozen=True, slots=True)
class Organisation:
    id: str
    slug: str
    is_active: bool
    limits: Mapping[str, Any]
    namespaces: Mapping[str, Namespace]  # by slug
    slugs: Mapping[str, str]  # slugs of the namespaces, by id
    digests: frozenset[bytes]  # digests of its keys
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class Key:
    organisation: str
    namespaces: frozenset[str] | None  # ids; None: all of its organisation
    scopes: frozenset[str]
    expires_at: float | None
    id: str = ""  # as the control plane knows it


@dataclass(frozen=True, slots=True)
class ServedModel:
    kv_dtypes: tuple[str, ...]
    context_tokens: int
    created: int


@dataclass(frozen=True, slots=True)
class Engine:
    agent: str
    address: str  # without a slash at the end
    is_open: bool
    models: Mapping[str, ServedModel]
    secret: bytes = field(repr=False)  # the gateway signs identities for the engine with it


@dataclass(frozen=True, slots=True)
class Tables:
    snapshot: Snapshot
    organisations: Mapping[str, Organisation]
    keys: Mapping[bytes, Key]
    engines: Mapping[str, Engine]
    refused: Mapping[str, Mapping[str, str]]  # model → format → why
    splits: tuple[Split, ...]  # splits of the fleet level; organisations have their own
    models: frozenset[str]
    most_context_tokens: int
    gateways: frozenset[str] = frozenset()  # living gateways of this group; empty: this one alone


def tables_empty() -> Tables:
    return Tables(snapshot_build("gateway", {}, {}), {}, {}, {}, {}, (), frozenset(), 0)


def tables_read(snapshot: Snapshot, previous: Tables) -> Tables:
    """Parse a snapshot, and reuse equal parts of the tables `previous`. Raise BadTables if an entry is invalid."""
    if snapshot.kind != "gateway":
        raise BadTables("kind", f"{snapshot.kind} is not gateway")
    organisations, keys = dict(previous.organisations), dict(previous.keys)
    rules: dict[str, Rules] = {}
    differing = list(_differing(previous.snapshot, snapshot))
    for org in differing:
        previous_organisation = organisations.pop(org, None)
        for digest in previous_organisation.digests if previous_organisation else ():
            del keys[digest]
    for org in differing:
        if org in snapshot.buckets:
            org_keys = _keys(org, snapshot)
            organisations[org] = _organisation(org, snapshot, frozenset(org_keys), rules)
            keys |= org_keys
    if snapshot.buckets.get(FLEET, _NO_BUCKET).hash == previous.snapshot.buckets.get(FLEET, _NO_BUCKET).hash:
        return replace(previous, snapshot=snapshot, organisations=organisations, keys=keys)
    fleet = {key: snapshot.entries[key] for key in snapshot.buckets.get(FLEET, _NO_BUCKET).members}
    engines = _engines(fleet)
    return Tables(
        snapshot=snapshot,
        organisations=organisations,
        keys=keys,
        engines=engines,
        refused=_refused(fleet),
        splits=_splits(_of(fleet, "split")),
        gateways=frozenset(agent for _, entry in _of(fleet, "doors") for agent in entry["gateways"]),
        models=frozenset(name for engine in engines.values() for name in engine.models),
        most_context_tokens=max(
            (model.context_tokens for engine in engines.values() for model in engine.models.values()), default=0
        ),
    )


def _differing(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Yield the organisations that differ between the two snapshots."""
    for org in before.buckets.keys() | after.buckets.keys():
        if org != FLEET and before.buckets.get(org, _NO_BUCKET).hash != after.buckets.get(org, _NO_BUCKET).hash:
            yield org


# Organisations


def _organisation(org: str, snapshot: Snapshot, digests: frozenset[bytes], rules: dict[str, Rules]) -> Organisation:
    entry = snapshot.entries.get(f"org/{org}")
    if entry is None:
        raise BadTables(f"org/{org}", "is missing, but entries are of it")
    namespaces = [
        _namespace(key, namespace_entry, snapshot, rules) for key, namespace_entry in _members(org, snapshot, "ns")
    ]
    return Organisation(
        id=org,
        slug=entry["slug"],
        is_active=entry["state"] == ACTIVE,
        limits=entry["limits"],
        namespaces={namespace.slug: namespace for namespace in namespaces},
        slugs={namespace.id: namespace.slug for namespace in namespaces},
        digests=digests,
        splits=_splits(_members(org, snapshot, "split")),
    )


def _namespace(key: str, entry: Entry, snapshot: Snapshot, rules: dict[str, Rules]) -> Namespace:
    policy_hash = entry["policy"]
    if policy_hash not in rules:
        rules[policy_hash] = _rules(key, snapshot.policies[policy_hash])
    secret = base64.b64decode(entry["key"])
    return Namespace(_id(key), entry["slug"], entry["revision"], rules[policy_hash], entry["epoch"], secret)


def _keys(org: str, snapshot: Snapshot) -> dict[bytes, Key]:
    return {bytes.fromhex(entry["hash"]): _key(org, key, entry) for key, entry in _members(org, snapshot, "key")}


def _key(org: str, key: str, entry: Entry) -> Key:
    namespace_ids, expiry = entry["namespaces"], entry["expires_at"]
    expires_at = datetime.fromisoformat(expiry).timestamp() if expiry else None
    namespaces = None if namespace_ids is None else frozenset(namespace_ids)
    return Key(org, namespaces, _scopes(tuple(entry["scopes"])), expires_at, _id(key))


@lru_cache(maxsize=256)
def _scopes(scopes: tuple[str, ...]) -> frozenset[str]:
    """Return one shared set for all keys with the same scopes."""
    return frozenset(scopes)


def _of(entries: Mapping[str, Entry], prefix: str) -> Iterator[tuple[str, Entry]]:
    """Return the entries with this prefix, sorted by key."""
    return ((key, entries[key]) for key in sorted(entries) if key.startswith(f"{prefix}/"))


def _members(org: str, snapshot: Snapshot, prefix: str) -> Iterator[tuple[str, Entry]]:
    return _of({key: snapshot.entries[key] for key in snapshot.buckets[org].members}, prefix)


def _id(key: str) -> str:
    return key.partition("/")[2]


def _rules(key: str, policy: Policy) -> Rules:
    """Parse a policy. Its values for a model override those for all models."""
    models = policy.get("models", {})
    if not isinstance(models, dict) or not all(isinstance(model_policy, dict) for model_policy in models.values()):
        raise BadTables(f"{key}.policy.models", "must be policies by model")
    return Rules(_formats(key, policy), {model: _formats(key, model_policy) for model, model_policy in models.items()})


def _formats(key: str, policy: Policy) -> Formats:
    kv_dtype, request_kv_dtypes = policy.get("kv_dtype", DEFAULT_FORMAT), policy.get("request_kv_dtypes", DEFAULT_ASKED)
    if not isinstance(kv_dtype, str):
        raise BadTables(f"{key}.policy.kv_dtype", "must be the name of a format")
    return Formats(kv_dtype, _texts(f"{key}.policy.request_kv_dtypes", request_kv_dtypes))


# The fleet


def _engines(fleet: Mapping[str, Entry]) -> Mapping[str, Engine]:
    return {entry["agent"]: _engine(key, entry) for key, entry in _of(fleet, "route")}


def _engine(key: str, entry: Entry) -> Engine:
    return Engine(
        agent=entry["agent"],
        address=_address(key, entry["address"]),
        is_open=entry["state"] == ACTIVE,
        models={name: _model(f"{key}.models.{name}", served_model) for name, served_model in entry["models"].items()},
        secret=entry["identity"].encode(),  # as in the engine's file, without decoding
    )


def _address(key: str, address: str) -> str:
    try:
        parts = urlsplit(address)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise BadTables(f"{key}.address", "must be like http://host:port")
    return address.rstrip("/")


def _model(where: str, fields: Any) -> ServedModel:
    if not isinstance(fields, dict):
        raise BadTables(where, "must be an object")
    kv_dtypes = _texts(f"{where}.kv_dtypes", fields.get("kv_dtypes", []))
    context, created = (_count(f"{where}.{name}", fields.get(name)) for name in ("context_tokens", "created"))
    return ServedModel(kv_dtypes, context, created)


def _texts(where: str, names: Any) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadTables(where, "must be a list of names")
    return tuple(names)


def _count(where: str, count: Any) -> int:
    """Return the count, or 0 if it is absent."""
    if count is not None and (type(count) is not int or count < 0):
        raise BadTables(where, "must be a whole number from 0")
    return count or 0


def _refused(fleet: Mapping[str, Entry]) -> Mapping[str, Mapping[str, str]]:
    refused: dict[str, dict[str, str]] = {}
    for _, entry in _of(fleet, "gate"):
        refused.setdefault(entry["model"], {}).update({name: str(why) for name, why in entry["refused"].items()})
    return refused


def _splits(entries: Iterable[tuple[str, Entry]]) -> tuple[Split, ...]:
    return tuple(
        Split(
            id=_id(key),
            namespaces=None if entry["namespaces"] is None else frozenset(entry["namespaces"]),
            agents=frozenset(entry["agents"]),
            share=float(entry["share"]),
        )
        for key, entry in entries
    )
