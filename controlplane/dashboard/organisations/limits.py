"""An organisation's limits and the bounds of its policies: shown to members, set by operators."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.dashboard.frame.pages import FORMS, actor_within, page
from controlplane.dashboard.organisations.common import REFUSED, Refusal, shown
from controlplane.dashboard.organisations.limit_forms import (
    BoundsForm,
    LimitsForm,
    bound_rows,
    bounds_initial,
    headline,
    limit_rows,
    limits_initial,
)
from tenants.access import OPERATE, READ, organisation_for
from tenants.actor import Actor
from tenants.bounds import bounds_of
from tenants.errors import NotFound, StaleRevision
from tenants.limits import limits_of
from tenants.listing import holdings_of
from tenants.models import Organisation
from tenants.services.organisations import bounds_put, limits_put

Tried = Mapping[str, forms.Form]


@page(methods=FORMS)
def limits(request: HttpRequest, org: str) -> HttpResponse:
    actor = actor_within(request, org)
    if request.method != "POST":
        return _page(request, actor, organisation_for(actor, org, READ), {})
    found, what = organisation_for(actor, org, OPERATE), request.POST.get("do", "")
    if what not in ("limits", "bounds"):
        raise NotFound("page")
    form: LimitsForm | BoundsForm = (
        LimitsForm(request.POST, held=holdings_of(found), prefix="limits")
        if what == "limits"
        else BoundsForm(request.POST, prefix="bounds")
    )
    if form.is_valid() and _set(actor, found, form):
        messages.success(request, f"The {what} of {found.name} are set. What is there already stays as it is.")
        return redirect("limits", found.slug)
    return _page(request, actor, organisation_for(actor, org, READ), {what: form}, status=REFUSED)


def _set(actor: Actor, found: Organisation, form: LimitsForm | BoundsForm) -> bool:
    told = form.cleaned_data
    expected = frozenset({told["revision"]})
    try:
        if "limits" in told:
            limits_put(actor=actor, organisation=found, limits=told["limits"], expected=expected)
        else:
            bounds_put(actor=actor, organisation=found, bounds=told["bounds"], expected=expected)
    except Refusal as error:
        form.refuse(error.problems)
    except StaleRevision as error:
        form.outdated(error, "these")
    return form.is_valid()


def _page(request: HttpRequest, actor: Actor, found: Organisation, tried: Tried, *, status: int = 200) -> HttpResponse:
    limits_now, bounds_now = limits_of(found.limits), bounds_of(found.bounds, found.bounds_revision)
    held = holdings_of(found)
    context: dict[str, Any] = {
        "headline": headline(found.name, limits_now, bounds_now),
        "limit_rows": limit_rows(limits_now, held),
        "bound_rows": bound_rows(bounds_now),
    }
    if actor.is_operator:
        context |= {
            "limits_form": tried.get("limits")
            or LimitsForm(initial=limits_initial(found.limits, found.limits_revision), held=held, prefix="limits"),
            "bounds_form": tried.get("bounds")
            or BoundsForm(initial=bounds_initial(bounds_now, found.bounds_revision), prefix="bounds"),
        }
    return shown(request, "limits", actor, found, context, status=status)
