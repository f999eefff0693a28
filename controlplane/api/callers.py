"""Authentication: turn a bearer token into an actor and count its requests. Cookies are ignored."""

from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja.security.base import AuthBase

from controlplane.api.errors import RefusedRequest
from controlplane.api.rate_limits import RateLimiter
from controlplane.api.rates import Verdict
from controlplane.common.request_id import request_id_current
from tenants.access import actor_for_token
from tenants.actor import Actor
from tenants.addresses import address_parse
from tenants.errors import InvalidToken


class TokenMissing(RefusedRequest):
    """The request has no bearer token."""


class RateLimited(Exception):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"{verdict.limit} requests a minute are the most")
        self.verdict = verdict


class Bearer(AuthBase):
    """Authenticates `Authorization: Bearer <key or operator token>`."""

    openapi_type = "http"
    openapi_scheme = "bearer"

    def __call__(self, request: HttpRequest) -> Actor:
        actor = actor_for_token(
            _bearer(request.headers.get("Authorization")),
            now=timezone.now(),
            address=address_parse(request.META.get("REMOTE_ADDR")),
            request_id=request_id_current() or "",
        )
        verdict = _limiter().take(f"{actor.kind}:{actor.id}")
        request.luminet_rate = verdict  # type: ignore[attr-defined]  # answered in the response's headers
        if verdict.retry_after is not None:
            raise RateLimited(verdict)
        return actor


def _bearer(header: str | None) -> str:
    if header is None:
        raise TokenMissing("Authorization", "is missing: send Bearer and an API key or an operator's token")
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.isascii():
        raise InvalidToken
    return token.strip()


@lru_cache(maxsize=1)
def _limiter() -> RateLimiter:
    environment = settings.ENVIRONMENT
    return RateLimiter(environment.redis_url, environment.api_requests_per_minute)
