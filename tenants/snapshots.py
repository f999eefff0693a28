"""The desired state of one group's agents, read from the database as a snapshot's entries. Writes nothing.

`protocol.py` defines an entry's form and hash; `desired.py` keeps a snapshot current.
"""

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.db.models import F, Q, QuerySet, TextField
from django.db.models.functions import Cast

from engine_agent.contracts.protocol import AgentKind, Entry, Policy, policy_hash
from tenants.actor import Scope
from tenants.levels import FLEET, Key
from tenants.limits import limits_of
from tenants.models import ApiKey, Namespace, NamespaceKey, Organisation, Pin, PolicyLevel
from tenants.policy import Values, effective_document
from tenants.services.namespace_keys import key_open

GATEWAY_LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
# One statement reads epoch and key, so that they belong together even during a purge.
NAMESPACE_COLUMNS = (
    "namespace_id",
    "namespace__slug",
    "epoch",
    "sealed",
    "namespace__policy_level__revision",
    "namespace__organisation_id",
    "namespace__organisation__slug",
    "namespace__organisation__state",
    # As text: thousands of rows have the same values, and comparing texts is cheaper than parsing them.
    Cast("namespace__organisation__limits", TextField()),
    Cast("namespace__organisation__policy_level__policy", TextField()),
    Cast("namespace__policy_level__policy", TextField()),
)


@dataclass(slots=True)
class Entries:
    """Entries by key, the policies they refer to, and for each organisation when its first entry expires."""

    entries: dict[str, Entry] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    ends: dict[str, datetime] = field(default_factory=dict)

    def add(self, key: str, entry: Entry, expires_at: datetime | None) -> None:
        self.entries[key] = entry
        if expires_at is not None:
            self.ends[entry["org"]] = min(expires_at, self.ends.get(entry["org"], expires_at))


def entries_read(
    group_id: int, kind: AgentKind, *, now: datetime, organisation_ids: Collection[int] | None = None
) -> Entries:
    """Read the entries of these organisations, or of all, in a constant number of queries.

    Pins and keys are included until they expire; agents apply `expires_at` themselves and need no message for it.
    """
    served = _served(group_id, organisation_ids)
    collected = Entries()
    _namespaces_add(collected, kind, served)
    if kind == "engine":
        _pins_add(collected, served, now)
    else:
        _keys_add(collected, served, now)
    return collected


@dataclass(frozen=True, slots=True)
class Older:
    """A revision of a level that some agents apply instead of its newest."""

    number: int
    policy: Values


def entries_held(group_id: int, older_revisions: Mapping[Key, Older], entries: Mapping[str, Entry]) -> Entries:
    """Return the namespaces' entries that differ if these levels have older revisions.

    `older_revisions` is keyed by their owners.
    """
    collected = Entries()
    fleet = older_revisions[FLEET.key].policy if FLEET.key in older_revisions else _fleet_policy()
    merged = _Merged(collected.policies, fleet)
    for pk, org, revision, org_policy, policy in _levels_below(group_id, older_revisions):
        current = entries.get(f"ns/{pk}")
        if current is None:
            continue  # created since the entries were read; the next read includes both
        own = older_revisions.get((None, pk), Older(revision, policy))
        above = older_revisions[org, None].policy if (org, None) in older_revisions else org_policy
        entry = {**current, "revision": own.number, "policy": merged.hash(_text(above), _text(own.policy))}
        if entry != current:
            collected.entries[f"ns/{pk}"] = entry
    collected.policies = {entry["policy"]: collected.policies[entry["policy"]] for entry in collected.entries.values()}
    return collected


def _levels_below(group_id: int, older_revisions: Mapping[Key, Older]) -> Iterator[tuple[int, int, int, Any, Any]]:
    """Yield the group's namespaces to which one of these levels applies."""
    served = _served(group_id, None)
    if FLEET.key not in older_revisions:
        organisations, namespaces = {org for org, _ in older_revisions}, {namespace for _, namespace in older_revisions}
        served = served.filter(Q(organisation__in=organisations - {None}) | Q(pk__in=namespaces - {None}))
    rows: Any = served.values_list(
        "pk",
        "organisation_id",
        "policy_level__revision",
        Cast("organisation__policy_level__policy", TextField()),
        Cast("policy_level__policy", TextField()),
    )
    yield from rows.iterator(chunk_size=5000)


def _text(policy: Values | str) -> str:
    return policy if isinstance(policy, str) else json.dumps(policy, sort_keys=True)


def _served(group_id: int, organisation_ids: Collection[int] | None) -> "QuerySet[Namespace]":
    existing = Namespace.objects.filter(group_id=group_id, deleted_at=None)
    existing = existing.exclude(organisation__state=Organisation.State.DELETED)
    return existing if organisation_ids is None else existing.filter(organisation_id__in=organisation_ids)


def _namespaces_add(collected: Entries, kind: AgentKind, served: "QuerySet[Namespace]") -> None:
    merged, cached_limits = _Merged(collected.policies, _fleet_policy()), cache(_limits)
    keys = NamespaceKey.objects.filter(namespace__in=served, epoch=F("namespace__epoch"), retired_at=None)
    rows: Any = keys.values_list(*NAMESPACE_COLUMNS)
    for pk, slug, epoch, sealed, revision, org, org_slug, state, limits, org_policy, policy in rows:
        collected.entries[f"org/{org}"] = {
            "org": str(org),
            "slug": org_slug,
            "state": state,
            "limits": cached_limits(limits) if kind == "gateway" else {},  # engines count no requests
        }
        collected.entries[f"ns/{pk}"] = {
            "org": str(org),
            "slug": slug,
            "epoch": epoch,
            "key": base64.b64encode(key_open(pk, epoch, sealed)).decode(),
            "revision": revision,
            "policy": merged.hash(org_policy, policy),
        }


class _Merged:
    """Effective policies, merged and hashed once for each combination of levels: ten thousand namespaces have few."""

    def __init__(self, policies: dict[str, Policy], fleet: Values) -> None:
        self._fleet = fleet
        self._policies = policies
        self.hash = cache(self._hash)

    def _hash(self, organisation: str, namespace: str) -> str:
        document = effective_document((self._fleet, json.loads(organisation), json.loads(namespace)))
        digest = policy_hash(document)
        self._policies[digest] = document
        return digest


def _fleet_policy() -> Values:
    policy = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True).first()
    return policy or {}


def _limits(stored: str) -> dict[str, int]:
    """Return the limits that gateways enforce. An omitted one means no limit."""
    limits = limits_of(json.loads(stored)).model_dump()
    return {name: limits[name] for name in GATEWAY_LIMITS if limits[name] is not None}


def _pins_add(collected: Entries, served: "QuerySet[Namespace]", now: datetime) -> None:
    """Add pins without their content, which is large and never changes: an agent fetches it once by the pin's id."""
    pins = Pin.objects.filter(_unexpired(now), namespace__in=served).select_related("namespace")
    for pin in pins.defer("sealed_content"):
        if f"ns/{pin.namespace_id}" not in collected.entries:
            continue  # created since the namespaces were read; the next read includes both
        entry = {
            "org": str(pin.namespace.organisation_id),
            "ns": str(pin.namespace_id),
            "name": pin.name,
            "model": pin.model,
            "kind": pin.content_kind,
            "bytes": pin.content_bytes,
            "expires_at": _instant(pin.expires_at),
        }
        collected.add(f"pin/{pin.pk}", entry, pin.expires_at)


def _keys_add(collected: Entries, served: "QuerySet[Namespace]", now: datetime) -> None:
    """Add keys. A key bound only to namespaces of other groups has an empty list: it is known, but useless here."""
    keys = ApiKey.objects.filter(_unexpired(now), revoked_at=None, scopes__contains=[Scope.INFER])
    for key in keys.filter(organisation__in=served.values("organisation")):
        if f"org/{key.organisation_id}" not in collected.entries:
            continue
        bound = key.namespace_ids
        entry = {
            "org": str(key.organisation_id),
            "hash": bytes(key.hash).hex(),
            "namespaces": None
            if bound is None
            else [str(namespace_id) for namespace_id in bound if f"ns/{namespace_id}" in collected.entries],
            "scopes": list(key.scopes),
            "expires_at": _instant(key.expires_at),
        }
        collected.add(f"key/{key.pk}", entry, key.expires_at)


def _unexpired(now: datetime) -> Q:
    return Q(expires_at=None) | Q(expires_at__gt=now)


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
