"""Middleware for every HTTP request: it measures and logs each once and sets strict security headers."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.decorators import sync_and_async_middleware

from controlplane.common.metrics import http_requests, http_seconds
from controlplane.common.one_time_links import is_one_time_link, without_secrets

log = logging.getLogger("luminet.web")

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
PERMISSIONS_POLICY = "camera=(), microphone=(), geolocation=(), payment=(), usb=()"

GetResponse = TypeVar("GetResponse", bound=Callable[[HttpRequest], Any])


def _around(get_response: Any, finish: Callable[[HttpRequest, HttpResponseBase, float], None]) -> Any:
    """Run `finish` after the response is made, without a thread switch, for synchronous and asynchronous views."""
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            started = time.perf_counter()
            response: HttpResponseBase = await get_response(request)
            finish(request, response, time.perf_counter() - started)
            return response

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        response: HttpResponseBase = get_response(request)
        finish(request, response, time.perf_counter() - started)
        return response

    return synchronous


class StrongETagGZip(GZipMiddleware):
    """Compresses responses without an ETag. Compression weakens ETags, and the API promises strong ones."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response if response.has_header("ETag") else super().process_response(request, response)


@sync_and_async_middleware
def observe(get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase] | HttpResponseBase]) -> Any:
    return _around(get_response, _observe)


@sync_and_async_middleware
def security_headers(get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase] | HttpResponseBase]) -> Any:
    return _around(get_response, _harden)


def _observe(request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
    route = request.resolver_match.route if request.resolver_match else "unmatched"
    method = request.method if request.method in KNOWN_METHODS else "OTHER"
    http_requests.labels(method, route, str(response.status_code)).inc()
    http_seconds.labels(method, route).observe(seconds)
    level = logging.ERROR if response.status_code >= 500 else logging.INFO
    fields = {
        "method": method,
        "path": without_secrets(request.path),
        "status": response.status_code,
        "ms": round(seconds * 1000, 1),
    }
    log.log(level, "request", extra=fields)


def _harden(request: HttpRequest, response: HttpResponseBase, seconds: float) -> None:
    response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
    if is_one_time_link(request.path):
        # The address is a secret, also in our own logs. `no-referrer` would make browsers send `Origin: null` with the
        # form, which the CSRF protection refuses; this policy sends the origin and never the path.
        response.headers["Referrer-Policy"] = "strict-origin"
    if "text/html" in response.headers.get("Content-Type", ""):
        # A page is for one signed-in user: neither a proxy nor the next user's back button may show it.
        response.headers.setdefault("Cache-Control", "no-store")
