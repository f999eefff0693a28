"""What every answer below /api/ has: a problem instead of a page when refused, rate limits, no cache."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
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
            return _finished(request, await get_response(request))

        return asynchronous

    return lambda request: _finished(request, get_response(request))  # type: ignore[arg-type]


def _finished(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if not request.path.startswith("/api/"):
        return response
    if response.status_code >= 400 and response.headers.get("Content-Type") != CONTENT_TYPE:
        response = _as_problem(response)
    response.headers.setdefault("Cache-Control", "no-store")
    verdict = getattr(request, "luminet_rate", None)
    if verdict is not None:
        for name, value in headers(verdict).items():
            response.headers[name] = value
    return response


def _as_problem(page: HttpResponseBase) -> HttpResponse:
    """What never reached an operation was answered for people; programs get the same in their form."""
    answer = problem_for_status(page.status_code)
    for name in KEPT:
        if page.has_header(name):
            answer[name] = page[name]
    return answer
