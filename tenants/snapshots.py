"""What agents of one group must hold, read from the database as entries of a snapshot. Writes nothing.

What an entry looks like, and its hash, is the protocol's; keeping a snapshot current is desired.py's.
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
# Epoch and key come out of one statement: even while somebody purges, they are of each other.
NAMESPACE_COLUMNS = (
    "namespace_id",
    "namespace__slug",
    "epoch",
    "sealed",
    "namespace__policy_level__revision",
    "namespace__organisation_id",
    "namespace__organisation__slug",
    "namespace__organisation__state",
    # As text: thousands say the same, which is cheaper to see than to read.
    Cast("namespace__organisation__limits", TextField()),
    Cast("namespace__organisation__policy_level__policy", TextField()),
    Cast("namespace__policy_level__policy", TextField()),
)


@dataclass(slots=True)
class Entries:
    """By key, with the policies they refer to, and for each organisation when the first of its entries expires."""

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
    """Of these organisations, or of all, in a constant number of queries.

    Pins and keys are in it until they expire; agents keep `expires_at` by themselves and need no message for it.
    """
    served = _served(group_id, organisation_ids)
    found = Entries()
    _namespaces_add(found, kind, served)
    if kind == "engine":
        _pins_add(found, served, now)
    else:
        _keys_add(found, served, now)
    return found


@dataclass(frozen=True, slots=True)
class Older:
    """A revision of a level that some agents hold instead of its newest."""

    number: int
    policy: Values


def entries_held(group_id: int, held: Mapping[Key, Older], entries: Mapping[str, Entry]) -> Entries:
    """Those namespaces' entries that differ where these levels, by the owners in their rows, say something older."""
    found = Entries()
    fleet = held[FLEET.key].policy if FLEET.key in held else _fleet_policy()
    merged = _Merged(found.policies, fleet)
    for pk, org, revision, org_policy, policy in _levels_below(group_id, held):
        before = entries.get(f"ns/{pk}")
        if before is None:
            continue  # made since the entries were read; whoever reads next meets both
        own = held.get((None, pk), Older(revision, policy))
        above = held[org, None].policy if (org, None) in held else org_policy
        entry = {**before, "revision": own.number, "policy": merged.hash(_text(above), _text(own.policy))}
        if entry != before:
            found.entries[f"ns/{pk}"] = entry
    found.policies = {one["policy"]: found.policies[one["policy"]] for one in found.entries.values()}
    return found


def _levels_below(group_id: int, held: Mapping[Key, Older]) -> Iterator[tuple[int, int, int, Any, Any]]:
    """Namespaces of the group for which one of these levels counts."""
    served = _served(group_id, None)
    if FLEET.key not in held:
        organisations, namespaces = {org for org, _ in held}, {namespace for _, namespace in held}
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
    living = Namespace.objects.filter(group_id=group_id, deleted_at=None)
    living = living.exclude(organisation__state=Organisation.State.DELETED)
    return living if organisation_ids is None else living.filter(organisation_id__in=organisation_ids)


def _namespaces_add(found: Entries, kind: AgentKind, served: "QuerySet[Namespace]") -> None:
    merged, counted = _Merged(found.policies, _fleet_policy()), cache(_limits)
    keys = NamespaceKey.objects.filter(namespace__in=served, epoch=F("namespace__epoch"), retired_at=None)
    rows: Any = keys.values_list(*NAMESPACE_COLUMNS)
    for pk, slug, epoch, sealed, revision, org, org_slug, state, limits, org_policy, policy in rows:
        found.entries[f"org/{org}"] = {
            "org": str(org),
            "slug": org_slug,
            "state": state,
            "limits": counted(limits) if kind == "gateway" else {},  # engines count no requests
        }
        found.entries[f"ns/{pk}"] = {
            "org": str(org),
            "slug": slug,
            "epoch": epoch,
            "key": base64.b64encode(key_open(pk, epoch, sealed)).decode(),
            "revision": revision,
            "policy": merged.hash(org_policy, policy),
        }


class _Merged:
    """Levels merged and hashed once for each different combination: ten thousand namespaces have few."""

    def __init__(self, policies: dict[str, Policy], fleet: Values) -> None:
        self._fleet = fleet
        self._policies = policies
        self.hash = cache(self._hash)

    def _hash(self, organisation: str, namespace: str) -> str:
        document = effective_document((self._fleet, json.loads(organisation), json.loads(namespace)))
        found = policy_hash(document)
        self._policies[found] = document
        return found


def _fleet_policy() -> Values:
    found = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).values_list("policy", flat=True).first()
    return found or {}


def _limits(stored: str) -> dict[str, int]:
    """Those a gateway counts; one left out is no limit."""
    limits = limits_of(json.loads(stored)).model_dump()
    return {name: limits[name] for name in GATEWAY_LIMITS if limits[name] is not None}


def _pins_add(found: Entries, served: "QuerySet[Namespace]", now: datetime) -> None:
    """Not what they hold, which may be large and never changes: an agent fetches that once, by the pin's id."""
    pins = Pin.objects.filter(_unexpired(now), namespace__in=served).select_related("namespace")
    for pin in pins.defer("sealed_content"):
        if f"ns/{pin.namespace_id}" not in found.entries:
            continue  # made since the namespaces were read; whoever reads next meets both
        entry = {
            "org": str(pin.namespace.organisation_id),
            "ns": str(pin.namespace_id),
            "name": pin.name,
            "model": pin.model,
            "kind": pin.content_kind,
            "bytes": pin.content_bytes,
            "expires_at": _instant(pin.expires_at),
        }
        found.add(f"pin/{pin.pk}", entry, pin.expires_at)


def _keys_add(found: Entries, served: "QuerySet[Namespace]", now: datetime) -> None:
    """A key bound to namespaces of other groups only is there with none: known, and good for nothing here."""
    keys = ApiKey.objects.filter(_unexpired(now), revoked_at=None, scopes__contains=[Scope.INFER])
    for key in keys.filter(organisation__in=served.values("organisation")):
        if f"org/{key.organisation_id}" not in found.entries:
            continue
        bound = key.namespace_ids
        entry = {
            "org": str(key.organisation_id),
            "hash": bytes(key.hash).hex(),
            "namespaces": None if bound is None else [str(one) for one in bound if f"ns/{one}" in found.entries],
            "scopes": list(key.scopes),
            "expires_at": _instant(key.expires_at),
        }
        found.add(f"key/{key.pk}", entry, key.expires_at)


def _unexpired(now: datetime) -> Q:
    return Q(expires_at=None) | Q(expires_at__gt=now)


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
