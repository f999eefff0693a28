"""The start page, sign-in, password and theme. A view reads the request, calls a service or selector, renders."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth import login, logout, update_session_auth_hash
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.analytics.stats import live_message
from controlplane.common.metrics import sign_ins
from controlplane.dashboard.accounts.forms import PasswordForm, SignInForm
from controlplane.dashboard.accounts.known_browsers import browser_device, browser_remember
from controlplane.dashboard.accounts.sign_in import sign_in_page
from controlplane.dashboard.analytics.analytics import numbers_of
from controlplane.dashboard.analytics.facts import window_asked
from controlplane.dashboard.frame.context import THEME_COOKIE, THEMES
from controlplane.dashboard.frame.pages import FORMS, operator_of, page, part
from controlplane.dashboard.frame.requests import address_of, next_page, origin_of, user_of
from controlplane.dashboard.frame.tiles import tile
from controlplane.dashboard.home.customer import Tried, fleet_ttl, groups_of, home_page, lifetime, refusal
from controlplane.dashboard.overview.overview import overview_of, watched_of
from controlplane.dashboard.overview.parts import advice, headline, parts_observe, pulse_summary
from controlplane.dashboard.policies.progress import progress_by_namespace
from controlplane.dashboard.policies.published import published_of
from controlplane.live.selectors import pulse_history
from controlplane.rollouts.selectors import agents_of, groups_below
from tenants.access import actor_for_member, actor_for_operator
from tenants.errors import SignInRefused, TooManySignIns, WeakPassword, WrongPassword
from tenants.homes import Home, homes_of, inheriting
from tenants.levels import FLEET, level_of
from tenants.policy import effective
from tenants.services.people import password_change
from tenants.services.people import sign_in as sign_in_user

YEAR_SECONDS = 365 * 24 * 3600


@page()
def home(request: HttpRequest) -> HttpResponse:
    return home_shown(request)


def home_shown(request: HttpRequest, *, tried: Tried | None = None, status: int = 200) -> HttpResponse:
    """Render the start page of operator or customer. `tried`: refused forms, shown as submitted."""
    user, publish_context = (
        user_of(request),
        {"published": published_of(user_of(request), request.GET.get("rollout", ""))},
    )
    if not user.is_operator:
        homes = homes_of(user)
        numbers = _analytics(request, homes)
        live_messages = {group: numbers.get("told") or live_message(group) for group in groups_of(homes)}
        rollout_notes = progress_by_namespace(
            [namespace_home.namespace for home in homes for namespace_home in home.namespaces]
        )
        context = {**home_page(homes, live_messages, tried or {}, rollout_notes), **numbers, **publish_context}
        return render(request, "dashboard/home/customer_home.html", context, status=status)
    actor = actor_for_operator(user)
    overview = overview_of()
    fleet_context = {**overview, **_fleet_numbers(tried or {}, overview["told"]), **watched_of(actor)}
    context = {**_parts(), **_pulses(), **fleet_context, **publish_context}
    return render(request, "dashboard/overview/overview.html", context, status=status)


@part
def parts(request: HttpRequest) -> HttpResponse:
    """Render the part of the overview that HTMX refreshes on every pulse."""
    operator_of(request)
    return render(request, "dashboard/overview/_parts.html", {**_parts(), "swapped": True})


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
                device = browser_device(request, form.cleaned_data["email"])
                user = sign_in_user(**form.cleaned_data, address=address_of(request), device=device, now=timezone.now())
            except SignInRefused as error:
                sign_ins.labels("refused").inc()
                form.add_error(None, str(error))
            except TooManySignIns as error:
                sign_ins.labels("held_back").inc()
                form.add_error(None, str(error))
                response = sign_in_page(request, form, 429)
                response["Retry-After"] = str(error.retry_after_seconds)
                return response
            else:
                sign_ins.labels("signed_in").inc()
                login(request, user)
                return browser_remember(request, HttpResponseRedirect(next_page(request)), user)
    return sign_in_page(request, form, status)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponseRedirect(next_page(request, otherwise="sign-in"))


@never_cache
@sensitive_post_parameters("current", "new", "again")
@page(methods=FORMS)
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
            return browser_remember(request, redirect(f"{reverse('password')}?changed"), user)
    status = 422 if request.method == "POST" else 200
    return render(
        request, "dashboard/accounts/password.html", {"form": form, "changed": "changed" in request.GET}, status=status
    )


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Remember light, dark or the system's theme, and go back to the page."""
    response = HttpResponseRedirect(next_page(request))
    theme = request.POST.get("theme", "")
    if theme in THEMES:
        response.set_cookie(THEME_COOKIE, theme, max_age=YEAR_SECONDS, samesite="Lax", secure=request.is_secure())
    return response


def _analytics(request: HttpRequest, homes: Sequence[Home]) -> dict[str, Any]:
    """Return the analytics of a member's only organisation; with several, each has a page."""
    if len(homes) != 1:
        return {}
    actor, window = actor_for_member(homes[0].member), window_asked(request.GET.get("window"))
    return numbers_of(actor, homes[0].organisation, window, address=reverse("home"))


def _parts() -> dict[str, Any]:
    observed = parts_observe(now=time.time())
    return {
        "parts": observed,
        "headline": headline(observed),
        "advice": advice(observed),
        "is_well": not any(part.is_silent for part in observed),
        "observed_at": timezone.now(),
    }


def _fleet_numbers(tried: Tried, message: Mapping[str, Any]) -> dict[str, Any]:
    level = level_of(FLEET)
    effective_policy = effective((level.policy,))
    ttl = fleet_ttl(effective_policy, level.revision, tried, agents=agents_of(groups_below(FLEET)).count())
    live_tile = tile(message, slug="fleet", title="", path="/ws/live/fleet")
    return {
        "tile": live_tile,
        "fact": live_tile.fact,
        "lifetime": lifetime(effective_policy),
        "ttl": ttl,
        "inherit": inheriting("ttl_seconds"),
        "refused": refusal([ttl]),
    }


def _pulses() -> dict[str, Any]:
    history = pulse_history(now=timezone.now())
    points = [[pulse.recorded_at.timestamp(), round(pulse.milliseconds, 1)] for pulse in history]
    return {
        "pulses": list(reversed(history)),
        "summary": pulse_summary(history),
        "live": {"seq": history[-1].seq if history else 0, "points": points},
    }
