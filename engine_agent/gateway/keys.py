"""Whose request it is, by the key that came with it. Only that decides; the client chooses among what is its own."""

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
# What is looked at instead of a key that is not there: one that ended before everything.
_NOBODYS = Key("", frozenset(), frozenset(), _NEVER)


@dataclass(frozen=True, slots=True)
class Caller:
    organisation: Organisation
    namespace: Namespace
    expires_at: float | None = None  # its key
    key_id: str = ""

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def key_digest(check: bytes, presented: str) -> bytes:
    """What a key is known by. `check` is the control plane's and in no snapshot, so that a snapshot is no list to try
    guesses on.
    """
    return hmac.digest(check, presented.encode("latin-1"), "sha256")


def caller_of(tables: Tables, check: bytes, headers: Mapping[str, str], *, now: float) -> Caller:
    """Raises ApiError. A key that is unknown, foreign, revoked or expired is the same to whoever presents it."""
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
    # Looked up by its digest: how long that takes tells nothing about any key but the one presented. And one that was
    # never there costs what one costs that has expired, or the time would tell that there was such a key.
    key = tables.keys.get(key_digest(check, presented.strip()), _NOBODYS)
    if (_ALWAYS if key.expires_at is None else key.expires_at) <= now:
        raise _unknown("The API key is not valid here.")
    return key


def _namespace(organisation: Organisation, key: Key, asked: str | None) -> Namespace:
    if asked is None:
        return _own(organisation, key)
    slug = asked.strip()
    found = organisation.namespaces.get(slug)
    if found is not None and _may_use(key, found):
        return found
    # One answer for a namespace that is not there and one that this key may not use.
    raise ApiError(404, f"This key may use no namespace {slug[:80]!a} here.", param=NAMESPACE, code="unknown_namespace")


def _may_use(key: Key, namespace: Namespace) -> bool:
    return key.namespaces is None or namespace.id in key.namespaces


def _own(organisation: Organisation, key: Key) -> Namespace:
    """Without being asked: the one that every organisation has, or the only one."""
    default = organisation.namespaces.get(DEFAULT)
    if default is not None and _may_use(key, default):
        return default
    usable = list(islice(_usable(organisation, key), MOST_NAMED))
    if len(usable) == 1:
        return usable[0]
    if not usable:
        raise ApiError(403, "This key may use no namespace that is served here.", code="no_namespace")
    named = ", ".join(sorted(one.slug for one in usable))
    problem = f"This key may use several namespaces: say which with the header {NAMESPACE}. Among them are {named}."
    raise ApiError(400, problem, param=NAMESPACE, code="namespace_required")


def _usable(organisation: Organisation, key: Key) -> Iterator[Namespace]:
    """In no order. An organisation may have very many: whoever needs only a few reads no more."""
    if key.namespaces is None:
        return iter(organisation.namespaces.values())
    slugs = (organisation.slugs[id_] for id_ in key.namespaces if id_ in organisation.slugs)
    return (organisation.namespaces[slug] for slug in slugs)


def _unknown(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
