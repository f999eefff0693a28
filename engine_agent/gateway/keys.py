"""Authenticates requests: the API key alone decides which organisation and namespaces a client may use."""

import hmac
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from engine_agent.gateway.tables import Key, Namespace, Organisation, Tables
from engine_agent.http.errors import ApiError

SCOPE = "infer"
DEFAULT = "default"
MOST_NAMED = 10
NAMESPACE = "x-luminet-namespace"
_ALWAYS, _NEVER = math.inf, -math.inf
# An unknown key is treated like this one, which expired before all others.
_NOBODYS = Key("", frozenset(), frozenset(), _NEVER)


@dataclass(frozen=True, slots=True)
class Caller:
    organisation: Organisation
    namespace: Namespace
    expires_at: float | None = None  # when its key expires
    key_id: str = ""

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def key_digest(check: bytes, presented: str) -> bytes:
    """Return the digest that identifies a key. `check` is the control plane's and in no snapshot, so that a snapshot
    cannot be used to test guesses.
    """
    return hmac.digest(check, presented.encode("latin-1"), "sha256")


def caller_of(tables: Tables, check: bytes, headers: Mapping[str, str], *, now: float) -> Caller:
    """Return the caller, or raise ApiError. Unknown, foreign, revoked and expired keys get the same error."""
    key = _key(tables, check, headers, now)
    organisation = tables.organisations[key.organisation]
    if SCOPE not in key.scopes:
        raise ApiError(
            403, f"This key may not be used for inference: it lacks the scope {SCOPE}.", code="missing_scope"
        )
    if not organisation.is_active:
        raise ApiError(403, "This organisation is suspended: ask whoever runs the service.", code="suspended")
    return Caller(organisation, _namespace(organisation, key, headers.get(NAMESPACE)), key.expires_at, key.id)


def _key(tables: Tables, check: bytes, headers: Mapping[str, str], now: float) -> Key:
    scheme, _, presented = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not presented.strip():
        raise _unknown("Send your API key in the header authorization: Bearer <key>.")
    # Looking up a digest takes a time that reveals nothing about other keys. An unknown key takes as long as an expired
    # one: otherwise the time would reveal that a key existed.
    key = tables.keys.get(key_digest(check, presented.strip()), _NOBODYS)
    if (_ALWAYS if key.expires_at is None else key.expires_at) <= now:
        raise _unknown("The API key is not valid here.")
    return key


def _namespace(organisation: Organisation, key: Key, requested_slug: str | None) -> Namespace:
    if requested_slug is None:
        return _own(organisation, key)
    slug = requested_slug.strip()
    namespace = organisation.namespaces.get(slug)
    if namespace is not None and _may_use(key, namespace):
        return namespace
    # A missing namespace and one that this key may not use get the same answer.
    raise ApiError(404, f"This key may use no namespace {slug[:80]!a} here.", param=NAMESPACE, code="unknown_namespace")


def _may_use(key: Key, namespace: Namespace) -> bool:
    return key.namespaces is None or namespace.id in key.namespaces


def _own(organisation: Organisation, key: Key) -> Namespace:
    """Return the namespace for a request that names none: `default`, or the only one that the key may use."""
    default = organisation.namespaces.get(DEFAULT)
    if default is not None and _may_use(key, default):
        return default
    usable = list(islice(_usable(organisation, key), MOST_NAMED))
    if len(usable) == 1:
        return usable[0]
    if not usable:
        raise ApiError(403, "This key may use no namespace that is served here.", code="no_namespace")
    slugs = ", ".join(sorted(namespace.slug for namespace in usable))
    problem = f"This key may use several namespaces: say which with the header {NAMESPACE}. Among them are {slugs}."
    raise ApiError(400, problem, param=NAMESPACE, code="namespace_required")


def _usable(organisation: Organisation, key: Key) -> Iterator[Namespace]:
    """Iterate over a key's namespaces, in no order. There may be very many, so read only as many as needed."""
    if key.namespaces is None:
        return iter(organisation.namespaces.values())
    slugs = (organisation.slugs[id_] for id_ in key.namespaces if id_ in organisation.slugs)
    return (organisation.namespaces[slug] for slug in slugs)


def _unknown(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
