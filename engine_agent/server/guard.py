"""Authorisation: which namespace a request is for. Only the headers read here decide that."""

import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Protocol

from engine_agent.contracts.identity import (
    HEADER,
    INFER,
    SHORTEST_SECRET,
    WATCH,
    BadIdentity,
    Identity,
    TooManyUsed,
    UsedBefore,
    UsedOnce,
    verify,
)
from engine_agent.http.errors import ApiError, unavailable

log = logging.getLogger(__name__)


class Guard(Protocol):
    def identify(self, headers: Mapping[str, str], request_id: str) -> Identity:
        """Return the request's identity, or raise an ApiError. `request_id` is for requests without one."""


class SignedGuard:
    """The guard of an engine in a fleet, where a gateway identifies the caller and signs the identity."""

    def __init__(
        self,
        secrets: Sequence[bytes],
        audience: str,
        *,
        clock: Callable[[], float] = time.time,
        used: UsedOnce | None = None,
    ) -> None:
        if not secrets or any(len(secret) < SHORTEST_SECRET for secret in secrets):
            raise ValueError(f"at least one secret is needed, and each of {SHORTEST_SECRET} bytes or more")
        self._secrets, self._audience, self._clock = tuple(secrets), audience, clock
        self._used = UsedOnce() if used is None else used  # an empty one is false
        self._since = clock()  # only the previous process knew the identities used before this

    def clock_moved(self, seconds: float) -> None:
        """Correct the start time after the clock was found to be off by this much."""
        self._since += seconds

    def identify(self, headers: Mapping[str, str], request_id: str) -> Identity:
        return _checked(self._believed(headers, request_id))

    def watching(self, headers: Mapping[str, str], request_id: str) -> Identity:
        """Return the identity of a gateway's own request, or raise an ApiError."""
        identity = self._believed(headers, request_id)
        if identity.scope != WATCH:
            raise ApiError(403, f"This is for gateways alone: it takes the scope {WATCH}.", code="missing_scope")
        return identity

    def _believed(self, headers: Mapping[str, str], request_id: str) -> Identity:
        header, now = headers.get(HEADER), self._clock()
        if header is None:
            raise _unknown("This engine serves a gateway's requests only.")
        try:
            identity = verify(header, self._secrets, audience=self._audience, now=now, since=self._since)
            self._used.use(identity, now)
        except BadIdentity as problem:
            log.warning("request %s: an identity was refused: %s", request_id, problem)
            raise _refusal(problem) from None
        return identity


class KeyGuard:
    """The guard of a standalone engine: a request with its one key gets `identity`, with its own request id."""

    def __init__(self, api_key_sha256: bytes, identity: Identity) -> None:
        self._key, self._identity = api_key_sha256, identity

    def identify(self, headers: Mapping[str, str], request_id: str) -> Identity:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _unknown("Send your API key in the header authorization: Bearer <key>.")
        if not hmac.compare_digest(sha256(key.strip().encode("latin-1")).digest(), self._key):
            raise _unknown("The API key is not valid here.")
        return _checked(replace(self._identity, request_id=request_id))


def _checked(identity: Identity) -> Identity:
    if identity.scope != INFER:
        raise ApiError(
            403, f"This key may not be used for inference: it lacks the scope {INFER}.", code="missing_scope"
        )
    return identity


def _refusal(problem: BadIdentity) -> ApiError:
    match problem:
        case UsedBefore():
            return ApiError(409, "The identity that came with the request was used before.", code="identity_used")
        case TooManyUsed():
            return unavailable("More requests came than can be told apart.", "overloaded")
    return _unknown("The identity that came with the request is not valid.")


def _unknown(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
