"""Pages that say what went wrong and what to do next."""

import sys

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.request_id import request_id_current
from tenants.locks import is_busy


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return problem(request, 403, "This form is too old to be sent", "Go back, reload the page and send it again.")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return problem(request, 400, "This request makes no sense", "Check the address, or go back and try again.")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return problem(request, 403, "You may not do this", "Ask an operator of this fleet for access.")


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return problem(request, 404, "There is no such page", "It may have moved, or it is not yours to see.")


def server_error(request: HttpRequest) -> HttpResponse:
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError):
        is_held = is_busy(error)
        title = "Somebody else is changing this right now" if is_held else "The database does not answer"
        answer = problem(request, 503, title, "Inference goes on. Reload this page in a moment.")
        answer["Retry-After"] = "1" if is_held else "5"
        return answer
    advice = f"Try again in a moment. If it stays, tell an operator this number: {request_id_current() or 'none'}."
    return problem(request, 500, "Something broke on our side", advice)


def problem(request: HttpRequest, status: int, title: str, advice: str) -> HttpResponse:
    context = {"title": title, "advice": advice, "status": status}
    return render(request, "dashboard/problem.html", context, status=status)
