"""The signed header with which a gateway names a request's customer to an engine. Standard library only.

`x-luminet-identity: v1.<payload>.<signature>`. The payload is the identity as canonical JSON; the signature is
HMAC-SHA256 over `v1.<payload>` with a secret that gateways and engines share. Both are in base64url without padding. A
header is valid for one engine, one attempt, one use and a few seconds, so a header read off the wire is of no use.
Nothing else in a request identifies its sender.

Gateways and engines are upgraded at different times. The signature covers the whole payload and is checked first. A
reader then ignores unknown members, except those that `critical` names: they change the meaning of others, so a reader
that does not know them refuses. A new member has a default and is omitted when it has that value, so older readers see
it only if it matters.
"""

import base64
import hmac
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, get_args

from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.strict_json import members

HEADER = "x-luminet-identity"
LIFETIME_SECONDS = 30.0  # validity that a gateway sets: one hop plus the difference of two clocks
LONGEST_SECONDS = 300.0  # longest validity that an engine accepts, because it must remember the header for so long
LONGEST_HEADER = 4_096
SHORTEST_SECRET = 32
MOST_REMEMBERED = 200_000
CRITICAL = "critical"  # a payload member outside the identity: the names of members that a reader must know
_VERSION = "v1"

INFER = "infer"  # the scope of requests that generate
# The scope of a gateway's own queries about the engine's cache; they serve no customer and generate nothing.
WATCH = "watch"
FLEET = "fleet"  # stands for organisation and namespace in that scope

Kind = Literal["customer", "probe"]


class BadIdentity(Exception):
    """The engine cannot accept this identity. The text is for the operator's log and never quotes the header."""


class UsedBefore(BadIdentity):
    """A single-use header was sent again."""


class TooManyUsed(BadIdentity):
    """The engine cannot remember more headers, so it could not detect a second use."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The customer of one attempt at a request, and until when it may start. Instants are unix seconds."""

    organisation_id: str
    organisation: str  # slugs are for headers and labels, ids decide
    namespace_id: str
    namespace: str
    scope: str
    policy_revision: int  # as known to the gateway; the engine answers with the one it applies
    request_id: str
    attempt: int  # from 1: a request sent to a second engine is another attempt
    kind: Kind
    deadline: float | None  # of the whole request
    issued_at: float  # a header signed before the engine started may have been used in its last boot
    expires_at: float  # of this header
    audience: str  # the agent that may accept it
    elsewhere_tokens: int = 0  # longest match in its prompt that the gateway knows at another agent; 0: none is longer
    key_id: str = ""  # the control plane's id of the API key, not a secret; empty: no key


def sign(identity: Identity, secret: bytes) -> str:
    """Return the header's value."""
    values = {name: getattr(identity, name) for name in _CHECKS}  # asdict would copy each value deeply
    if problem := _problem(values):
        raise ValueError(problem)
    non_default = {name: value for name, value in values.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}
    signed = f"{_VERSION}.{_base64url(canonical_json(non_default))}"
    return f"{signed}.{_signature(signed, secret)}"


def verify(header: str, secrets: Iterable[bytes], *, audience: str, now: float, since: float = -math.inf) -> Identity:
    """Return the identity if one of the secrets signed it, for this audience, valid now and not issued before `since`.

    Only `UsedOnce` detects a second use.
    """
    signed, signature = _parted(header)
    # Try every secret in constant time, so that the duration does not reveal which one is in use.
    if not sum([hmac.compare_digest(_signature(signed, secret).encode(), signature.encode()) for secret in secrets]):
        raise BadIdentity("the signature is by none of the secrets here")
    identity = _identity(signed.removeprefix(f"{_VERSION}."))
    if identity.audience != audience:
        raise BadIdentity(f"made for {identity.audience}, not for {audience}")
    if identity.expires_at <= now:
        raise BadIdentity(f"expired {now - identity.expires_at:.1f} s ago: is a clock wrong?")
    if identity.issued_at < since:
        raise BadIdentity(f"issued {since - identity.issued_at:.1f} s before this engine began: is a clock wrong?")
    if identity.expires_at > now + LONGEST_SECONDS:
        raise BadIdentity(
            f"good for {identity.expires_at - now:.0f} s, and no longer than {LONGEST_SECONDS:.0f} s may be"
        )
    return identity


class UsedOnce:
    """The identities used so far, each remembered until it expires, so that no identity is used twice.

    This holds even if the clock is set back: an identity that may be among the forgotten ones is refused.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._until: dict[tuple[str, str, int], float] = {}
        self._next_sweep = self._forgotten_until = -math.inf

    def use(self, identity: Identity, now: float) -> None:
        if now >= self._next_sweep or len(self._until) >= self._most:
            self._sweep(now)
        attempt = (identity.organisation_id, identity.request_id, identity.attempt)
        if self._until.get(attempt, -math.inf) > now:
            raise UsedBefore(f"request {identity.request_id}, attempt {identity.attempt} was here before")
        if identity.expires_at <= self._forgotten_until:
            raise UsedBefore("the clock was set back, and this may be one that was used and is forgotten")
        if len(self._until) >= self._most:  # forgetting one would allow a second use
            raise TooManyUsed(f"{self._most} others were used within {LONGEST_SECONDS:.0f} s, no more are remembered")
        self._until[attempt] = identity.expires_at

    def __len__(self) -> int:
        return len(self._until)

    def _sweep(self, now: float) -> None:
        expired = (until for until in self._until.values() if until <= now)
        self._forgotten_until = max([self._forgotten_until, *expired])
        self._until = {attempt: until for attempt, until in self._until.items() if until > now}
        self._next_sweep = now + LIFETIME_SECONDS


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signature(signed: str, secret: bytes) -> str:
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(f"a secret of {len(secret)} bytes is shorter than {SHORTEST_SECRET}")
    return _base64url(hmac.digest(secret, b"luminet identity\0" + signed.encode(), "sha256"))


def _parted(header: str) -> tuple[str, str]:
    signed, _, signature = header.rpartition(".")
    if len(header) > LONGEST_HEADER or not header.isascii() or not signed.startswith(f"{_VERSION}."):
        raise BadIdentity(f"no header of the form {_VERSION}.payload.signature in {LONGEST_HEADER:,} characters")
    return signed, signature


def _identity(payload: str) -> Identity:
    """Return the identity in a payload. A valid signature does not guarantee valid values."""
    try:
        document = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), object_pairs_hook=members)
    except (ValueError, RecursionError):
        raise BadIdentity("the payload is not JSON in base64url, each name once") from None
    if not isinstance(document, dict):
        raise BadIdentity("the payload is no object")
    if not _are_known(document.get(CRITICAL, [])):
        raise BadIdentity("the payload has a critical member that is not known here: is the gateway newer?")
    values = {name: document[name] if name in document else _DEFAULTS.get(name, MISSING) for name in _CHECKS}
    if missing := [name for name, value in values.items() if value is MISSING]:
        raise BadIdentity(f"the payload lacks {missing[0]}")
    if problem := _problem(values):
        raise BadIdentity(problem)
    return Identity(**values)


def _are_known(critical: Any) -> bool:
    return isinstance(critical, list) and all(isinstance(name, str) and name in _CHECKS for name in critical)


def _problem(values: Mapping[str, Any]) -> str | None:
    wrong = next((name for name, is_good in _CHECKS.items() if not is_good(values[name])), None)
    return wrong and f"{wrong} has a value it cannot have"


def _text_like(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _is_instant(value: Any) -> bool:
    return type(value) in (int, float) and -1e12 < value < 1e12  # NaN fails this comparison


def _count_from(minimum: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and minimum <= value < 2**63


_is_id = _text_like(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # harmless in a header, a label and a log
_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "organisation_id": _is_id,
    "organisation": _is_id,
    "namespace_id": _is_id,
    "namespace": _is_id,
    "scope": _is_id,
    "policy_revision": _count_from(0),
    "request_id": _is_id,
    "attempt": _count_from(1),
    "kind": lambda value: value in get_args(Kind),
    "deadline": lambda value: value is None or _is_instant(value),
    "issued_at": _is_instant,
    "expires_at": _is_instant,
    "audience": _is_id,
    "elsewhere_tokens": _count_from(0),
    "key_id": lambda value: value == "" or _is_id(value),
}
_DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(Identity) if field.default is not MISSING}
assert list(_CHECKS) == [field.name for field in fields(Identity)]
