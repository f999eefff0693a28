"""Identifies callers of a stock vLLM: by a gateway's signature, by an API key, or as one namespace for all."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from engine_agent.http.errors import ApiError
from engine_agent.server.guard import SignedGuard
from engine_agent.vllm_front.config import FrontConfig


@dataclass(frozen=True, slots=True)
class Caller:
    namespace: str  # its id
    slug: str  # the name in response headers
    kind: str = "customer"
    elsewhere_tokens: int = 0


class Guard(Protocol):
    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller, or raise ApiError."""


def guard(config: FrontConfig) -> Guard:
    if config.identity_secrets:
        return GatewayGuard(SignedGuard(config.identity_secrets, config.agent_id))
    if config.keys:
        return KeysGuard(config.keys)
    return EverybodyGuard(config.default_namespace) if config.default_namespace else NobodyGuard()


class GatewayGuard:
    def __init__(self, signed: SignedGuard, clock: Callable[[], float] = time.time) -> None:
        self._signed, self._clock = signed, clock

    def caller(self, headers: Mapping[str, str]) -> Caller:
        identity = self._signed.identify(headers, headers.get("x-request-id", "")[:64])
        if identity.deadline is not None and identity.deadline <= self._clock():
            raise ApiError(504, "The request took longer than it was given.", code="deadline_exceeded")
        return Caller(identity.namespace_id, identity.namespace, identity.kind, identity.elsewhere_tokens)


class KeysGuard:
    """`keys` maps an API key's sha256 to its namespace, so that the time of a lookup reveals nothing."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = keys

    def caller(self, headers: Mapping[str, str]) -> Caller:
        key = bearer(headers)
        namespace = key and self._keys.get(sha256(key.encode("latin-1")).hexdigest())
        if not namespace:
            raise unknown(
                "Send your API key in the header authorization: Bearer <key>; there is none that is known here."
            )
        return Caller(namespace, namespace)


class EverybodyGuard:
    def __init__(self, namespace: str) -> None:
        self._caller = Caller(namespace, namespace)

    def caller(self, headers: Mapping[str, str]) -> Caller:
        return self._caller


class NobodyGuard:
    def caller(self, headers: Mapping[str, str]) -> Caller:
        raise unknown("Nobody says whose requests are: this server's operator has configured no namespace.")


def bearer(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def unknown(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
