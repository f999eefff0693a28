"""Middleware for every answer below /api/: refusals as problem documents, rate limits, no caching."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from controlplane.api.problem_json import CONTENT_TYPE
from controlplane.api.problems import problem_for_status
from controlplane.api.rates import headers

KEPT = ("Allow", "Retry-After", "WWW-Authenticate")


@sync_and_async_middleware
def api_answers(get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase] | HttpResponseBase]) -> Any:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            with _head_is_get(request):
                return _finished(request, await get_response(request))

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        with _head_is_get(request):
            return _finished(request, get_response(request))  # type: ignore[arg-type]

    return synchronous


@contextmanager
def _head_is_get(request: HttpRequest) -> Iterator[None]:
    """Treat HEAD as GET, so that every readable path supports it; the server drops the body."""
    is_head = request.method == "HEAD" and request.path.startswith("/api/")
    if is_head:
        request.method = "GET"
    yield
    if is_head:
        request.method = "HEAD"


def _finished(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if not request.path.startswith("/api/"):
        return response
    if response.status_code >= 400 and response.headers.get("Content-Type") != CONTENT_TYPE:
        response = _as_problem(request, response)
    response.headers.setdefault("Cache-Control", "no-store")
    verdict = getattr(request, "luminet_rate", None)
    if verdict is not None:
        for name, value in headers(verdict).items():
            response.headers[name] = value
    return response


def _as_problem(request: HttpRequest, page: HttpResponseBase) -> HttpResponse:
    """Turn an error page, made before any operation was reached, into a problem document."""
    answer = problem_for_status(page.status_code, [] if _is_host_ours(request) else [("Host", "is not a name of ours")])
    for name in KEPT:
        if page.has_header(name):
            answer[name] = page[name]
    return answer


def _is_host_ours(request: HttpRequest) -> bool:
    try:
        request.get_host()
    except DisallowedHost:
        return False
    return True
