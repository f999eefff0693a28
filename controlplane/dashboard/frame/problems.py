"""Error pages: what went wrong and what to do next."""

import sys
from collections.abc import Sequence
from typing import Final

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.common.request_id import request_id_current
from controlplane.dashboard.accounts.forms import SignInForm
from controlplane.dashboard.accounts.sign_in import sign_in_page
from controlplane.dashboard.frame.requests import STOP_ASKING
from tenants.locks import is_busy

SIGNED_OUT = "Your session has ended."
RENEWED = "You have signed in again since this page was opened."
SECRETS: Final = frozenset({"csrfmiddlewaretoken", "password", "current", "new", "again", "key"})
# Buttons and values that a form sends about the state of its page.
NOT_TYPED: Final = frozenset({"do", "next", "publish", "models", "guards", "revision", "once", "seen"})
NOT_TYPED_ENDS: Final = ("-has", "-revision", "-unit")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    if request.headers.get("HX-Request"):
        is_in = request.user.is_authenticated
        return part_ended(request, RENEWED if is_in else SIGNED_OUT, signs_in=not is_in)
    is_sign_in = request.resolver_match is not None and request.resolver_match.url_name == "sign-in"
    if is_sign_in and not request.user.is_authenticated:
        return sign_in_page(request, SignInForm(initial={"email": request.POST.get("email", "")}), 403)
    advice = "Its page belongs to another session. Nothing was done: open the page again, and fill in the form."
    return problem(request, 403, "This form is too old to be sent", advice)


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
        response = problem(request, 503, title, "Inference goes on. Reload this page in a moment.")
        response["Retry-After"] = "1" if is_held else "5"
        return response
    advice = f"Try again in a moment. If it stays, tell an operator this number: {request_id_current() or 'none'}."
    return problem(request, 500, "Something broke on our side", advice)


def may_not(request: HttpRequest, status: int, title: str, advice: str) -> HttpResponse:
    """Return a page for a user without access. It shows their input for them to copy."""
    if request.method == "POST":
        advice = f"{advice} Nothing was done."
    return problem(request, status, title, advice, typed=typed_fields(request))


def typed_fields(request: HttpRequest) -> list[tuple[str, str]]:
    """Return what a signed-in person typed, for them to copy."""
    user = getattr(request, "user", None)  # missing if the request is refused early
    # Django checks only forms that lead to a view: any other may come from another site.
    if request.resolver_match is None or user is None or not user.is_authenticated:
        return []
    fields = [(name, value) for name, values in request.POST.lists() for value in values if value]
    unseen = SECRETS | NOT_TYPED
    return [(name, value) for name, value in fields if name not in unseen and not name.endswith(NOT_TYPED_ENDS)]


def part_ended(request: HttpRequest, why: str, *, signs_in: bool = False) -> HttpResponse:
    """Return a message that HTMX shows in place of a part, and stop its polling. Input on the page stays."""
    context = {"why": why, "signs_in": signs_in}
    response = render(request, "dashboard/frame/_part_ended.html", context, status=STOP_ASKING)
    response["HX-Reswap"] = "innerHTML"
    return response


def problem(
    request: HttpRequest, status: int, title: str, advice: str, *, typed: Sequence[tuple[str, str]] = ()
) -> HttpResponse:
    context = {"title": title, "advice": advice, "status": status, "typed": typed}
    return render(request, "dashboard/frame/problem.html", context, status=status)
