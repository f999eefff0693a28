"""Pages behind one-time links: an invitation to an organisation, and a reset of a forgotten password.

Opening a link does not use it up, because mail scanners open every link; submitting the form does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from controlplane.common.metrics import sign_ins
from controlplane.dashboard.accounts.forms import JoinForm, NewPasswordForm
from controlplane.dashboard.accounts.known_browsers import browser_remember
from controlplane.dashboard.frame.requests import origin_of, user_of
from controlplane.dashboard.frame.words import MAY, ROLES, span
from tenants.errors import LinkSpent, SignInRefused, TooManySignIns, WeakPassword
from tenants.models import OneTimeLink, User
from tenants.services.members import (
    INVITATION_LASTS,
    RESET_LASTS,
    invitation_accept,
    link_open,
    reset_accept,
)

LASTS = {OneTimeLink.Purpose.INVITATION: INVITATION_LASTS, OneTimeLink.Purpose.RESET: RESET_LASTS}
View = Callable[[HttpRequest, OneTimeLink, str], HttpResponse]


def _opened_by(purpose: OneTimeLink.Purpose) -> Callable[[View], Callable[..., HttpResponse]]:
    """Decorate a page behind a valid link. Used, expired and unknown links give the same page."""

    def around(view: View) -> Callable[..., HttpResponse]:
        @never_cache
        @sensitive_post_parameters("new", "again")
        @require_http_methods(["GET", "HEAD", "POST"])
        @wraps(view)
        def page(request: HttpRequest, token: str) -> HttpResponse:
            try:
                return view(request, link_open(purpose, token, now=timezone.now()), token)
            except LinkSpent:
                context = {"purpose": purpose, "lasts": span(LASTS[purpose])}
                return render(request, "dashboard/accounts/link_spent.html", context, status=404)

        return page

    return around


@_opened_by(OneTimeLink.Purpose.INVITATION)
def invitation(request: HttpRequest, link: OneTimeLink, token: str) -> HttpResponse:
    member = link.member
    if member is None:
        raise LinkSpent
    if _is_somebody_else(request, member.email):
        return _somebody_else(request, link, member.email)
    context = {"link": link, "member": member, "role": ROLES[member.role], "may": MAY[member.role]}
    success_text = f"Welcome. You are part of {member.organisation.name} now."
    page = LinkPage(
        "dashboard/accounts/invitation.html", JoinForm(request.POST or None), context, invitation_accept, success_text
    )
    return _answer(request, token, page)


@_opened_by(OneTimeLink.Purpose.RESET)
def reset(request: HttpRequest, link: OneTimeLink, token: str) -> HttpResponse:
    user = link.user
    if user is None or not user.is_active:
        raise LinkSpent
    if _is_somebody_else(request, user.email):
        return _somebody_else(request, link, user.email)
    context, success_text = (
        {"link": link, "email": user.email},
        "Your new password is set. Your other sessions have ended.",
    )
    page = LinkPage(
        "dashboard/accounts/reset.html", NewPasswordForm(request.POST or None), context, reset_accept, success_text
    )
    return _answer(request, token, page)


@dataclass(frozen=True, slots=True)
class LinkPage:
    """A form behind a link, the service that accepts it, and the message afterwards."""

    template: str
    form: NewPasswordForm
    context: dict[str, Any]
    accept: Callable[..., User]
    told: str

    def shown(self, request: HttpRequest, status: int) -> HttpResponse:
        return render(request, self.template, {**self.context, "form": self.form}, status=status)


def _answer(request: HttpRequest, token: str, page: LinkPage) -> HttpResponse:
    """Show the form. Once it is accepted, sign in and go to the start page."""
    if request.method != "POST":
        return page.shown(request, 200)
    if page.form.is_valid():
        try:
            user = page.accept(secret=token, **page.form.typed(), **origin_of(request), now=timezone.now())
        except WeakPassword as error:
            page.form.add_error("new", error.problems)
        except SignInRefused:
            sign_ins.labels("refused").inc()
            page.form.add_error("new", JoinForm.refused)
        except TooManySignIns as error:
            return _held_back(request, page, error)
        else:
            return _home(request, user, page.told)
    return page.shown(request, 422)


def _home(request: HttpRequest, user: User, success_text: str) -> HttpResponse:
    sign_ins.labels("signed_in").inc()
    login(request, user)
    messages.success(request, success_text)
    return browser_remember(request, redirect("home"), user)


def _held_back(request: HttpRequest, page: LinkPage, error: TooManySignIns) -> HttpResponse:
    sign_ins.labels("held_back").inc()
    page.form.add_error(None, str(error))
    response = page.shown(request, 429)
    response["Retry-After"] = str(error.retry_after_seconds)
    return response


def _is_somebody_else(request: HttpRequest, email: str) -> bool:
    return request.user.is_authenticated and user_of(request).email != email


def _somebody_else(request: HttpRequest, link: OneTimeLink, email: str) -> HttpResponse:
    status = 409 if request.method == "POST" else 200
    context = {"purpose": link.purpose, "email": email, "signed_in": user_of(request).email}
    return render(request, "dashboard/accounts/link_for_another.html", context, status=status)
