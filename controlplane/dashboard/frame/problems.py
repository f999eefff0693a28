"""Pages that say what went wrong and what to do next."""

import sys
from collections.abc import Sequence

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.common.request_id import request_id_current
from controlplane.dashboard.accounts.keeping import TooLong
from controlplane.dashboard.accounts.resuming import RENEWED, TOO_LONG, token_renewed, typed_by_them
from controlplane.dashboard.frame.requests import STOP_ASKING
from tenants.locks import is_busy

SIGNED_OUT = "Your session has ended."


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    if request.headers.get("HX-Request"):
        is_in = request.user.is_authenticated
        return part_ended(request, RENEWED if is_in else SIGNED_OUT, signs_in=not is_in)
    advice = "Go back, reload the page and send it again."
    try:
        again = token_renewed(request)
    except TooLong:  # a reload would take it from them
        again, advice = None, f"Nothing was done. {TOO_LONG}"
    return again or problem(request, 403, "This form is too old to be sent", advice)


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return problem(request, 400, "This request makes no sense", "Check the address, or go back and try again.")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return problem(request, 403, "You may not do this", "Ask an operator of this fleet for access.")


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return may_not(request, 404, "There is no such page", "It may have moved, or it is not yours to see.")


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


def may_not(request: HttpRequest, status: int, title: str, advice: str) -> HttpResponse:
    """For who may not see or do this, or not any more. What they typed is theirs to copy."""
    if request.method == "POST":
        advice = f"{advice} Nothing was done."
    return problem(request, status, title, advice, typed=typed_by_them(request))


def part_ended(request: HttpRequest, why: str, *, signs_in: bool = False) -> HttpResponse:
    """In place of a part, for HTMX: the rest of the page, with what is typed there, stays as it is. It asks no more."""
    context = {"why": why, "signs_in": signs_in}
    answer = render(request, "dashboard/frame/_part_ended.html", context, status=STOP_ASKING)
    answer["HX-Reswap"] = "innerHTML"
    return answer


def problem(
    request: HttpRequest, status: int, title: str, advice: str, *, typed: Sequence[tuple[str, str]] = ()
) -> HttpResponse:
    context = {"title": title, "advice": advice, "status": status, "typed": typed}
    return render(request, "dashboard/frame/problem.html", context, status=status)
