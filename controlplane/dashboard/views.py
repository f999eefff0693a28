"""The pages. Each view reads the request, calls one service or selector, and renders."""

import sys
import time
from typing import Any

from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.dashboard.context import THEME_COOKIE, THEMES
from controlplane.dashboard.forms import PasswordForm, SignInForm
from controlplane.dashboard.homes import home_page
from controlplane.dashboard.parts import advice, headline, parts_observe, pulse_summary
from controlplane.dashboard.requests import address_of, next_page, origin_of, user_of
from controlplane.live.selectors import pulse_history
from controlplane.metrics import sign_ins
from controlplane.request_id import request_id_current
from tenants.errors import SignInRefused, TooManySignIns, WeakPassword, WrongPassword
from tenants.homes import homes_of
from tenants.locks import is_busy
from tenants.services.people import password_change
from tenants.services.people import sign_in as sign_in_user

YEAR_SECONDS = 365 * 24 * 3600


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    if not user_of(request).is_operator:
        return render(request, "dashboard/customer_home.html", home_page(homes_of(user_of(request))))
    return render(request, "dashboard/overview.html", {**_parts(), **_pulses()})


@require_safe
def parts(request: HttpRequest) -> HttpResponse:
    """The part of the overview that HTMX refreshes on every pulse."""
    if not request.user.is_authenticated:
        # The session has ended under an open page: it reloads as a whole, or sign-in would appear inside a panel.
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    if not user_of(request).is_operator:
        return not_found(request)
    return render(request, "dashboard/_parts.html", {**_parts(), "swapped": True})


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return HttpResponseRedirect(next_page(request))
    form = SignInForm(request.POST or None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                user = sign_in_user(**form.cleaned_data, address=address_of(request), now=timezone.now())
            except SignInRefused as error:
                sign_ins.labels("refused").inc()
                form.add_error(None, str(error))
            except TooManySignIns as error:
                sign_ins.labels("held_back").inc()
                form.add_error(None, str(error))
                answer = _sign_in_page(request, form, 429)
                answer["Retry-After"] = str(error.retry_after_seconds)
                return answer
            else:
                sign_ins.labels("signed_in").inc()
                login(request, user)
                return HttpResponseRedirect(next_page(request))
    return _sign_in_page(request, form, status)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponseRedirect(next_page(request, otherwise="sign-in"))


@never_cache
@sensitive_post_parameters("current", "new", "again")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    form = PasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = user_of(request)
        try:
            password_change(
                user=user, current=form.cleaned_data["current"], new=form.cleaned_data["new"], **origin_of(request)
            )
        except WrongPassword as error:
            form.add_error("current", str(error))
        except WeakPassword as error:
            form.add_error("new", error.problems)
        else:
            update_session_auth_hash(request, user)
            return redirect(f"{reverse('password')}?changed")
    status = 422 if request.method == "POST" else 200
    return render(
        request, "dashboard/password.html", {"form": form, "changed": "changed" in request.GET}, status=status
    )


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Remember light, dark or the system's choice, and go back to where the person was."""
    answer = HttpResponseRedirect(next_page(request))
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        answer.set_cookie(THEME_COOKIE, chosen, max_age=YEAR_SECONDS, samesite="Lax", secure=request.is_secure())
    return answer


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return _problem(request, 403, "This form is too old to be sent", "Go back, reload the page and send it again.")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _problem(request, 400, "This request makes no sense", "Check the address, or go back and try again.")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _problem(request, 403, "You may not do this", "Ask an operator of this fleet for access.")


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _problem(request, 404, "There is no such page", "It may have moved, or it is not yours to see.")


def server_error(request: HttpRequest) -> HttpResponse:
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError):
        is_held = is_busy(error)
        title = "Somebody else is changing this right now" if is_held else "The database does not answer"
        answer = _problem(request, 503, title, "Inference goes on. Reload this page in a moment.")
        answer["Retry-After"] = "1" if is_held else "5"
        return answer
    advice = f"Try again in a moment. If it stays, tell an operator this number: {request_id_current() or 'none'}."
    return _problem(request, 500, "Something broke on our side", advice)


def _problem(request: HttpRequest, status: int, title: str, advice: str) -> HttpResponse:
    context = {"title": title, "advice": advice, "status": status}
    return render(request, "dashboard/problem.html", context, status=status)


def _sign_in_page(request: HttpRequest, form: SignInForm, status: int) -> HttpResponse:
    return render(request, "dashboard/sign_in.html", {"form": form, "next": next_page(request)}, status=status)


def _parts() -> dict[str, Any]:
    observed = parts_observe(now=time.time())
    return {
        "parts": observed,
        "headline": headline(observed),
        "advice": advice(observed),
        "observed_at": timezone.now(),
    }


def _pulses() -> dict[str, Any]:
    history = pulse_history(now=timezone.now())
    points = [[round(p.recorded_at.timestamp(), 2), round(p.milliseconds, 1)] for p in history]
    return {
        "pulses": list(reversed(history)),
        "summary": pulse_summary(history),
        "live": {"seq": history[-1].pk if history else 0, "points": points},
    }
