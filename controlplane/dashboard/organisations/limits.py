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
    organisation, form_name = organisation_for(actor, org, OPERATE), request.POST.get("do", "")
    if form_name not in ("limits", "bounds"):
        raise NotFound("page")
    form: LimitsForm | BoundsForm = (
        LimitsForm(request.POST, held=holdings_of(organisation), prefix="limits")
        if form_name == "limits"
        else BoundsForm(request.POST, prefix="bounds")
    )
    if form.is_valid() and _set(actor, organisation, form):
        messages.success(
            request, f"The {form_name} of {organisation.name} are set. What is there already stays as it is."
        )
        return redirect("limits", organisation.slug)
    return _page(request, actor, organisation_for(actor, org, READ), {form_name: form}, status=REFUSED)


def _set(actor: Actor, organisation: Organisation, form: LimitsForm | BoundsForm) -> bool:
    cleaned = form.cleaned_data
    expected = frozenset({cleaned["revision"]})
    try:
        if "limits" in cleaned:
            limits_put(actor=actor, organisation=organisation, limits=cleaned["limits"], expected=expected)
        else:
            bounds_put(actor=actor, organisation=organisation, bounds=cleaned["bounds"], expected=expected)
    except Refusal as error:
        form.refuse(error.problems)
    except StaleRevision as error:
        form.outdated(error, "these")
    return form.is_valid()


def _page(
    request: HttpRequest, actor: Actor, organisation: Organisation, tried: Tried, *, status: int = 200
) -> HttpResponse:
    limits_now, bounds_now = (
        limits_of(organisation.limits),
        bounds_of(organisation.bounds, organisation.bounds_revision),
    )
    holdings = holdings_of(organisation)
    context: dict[str, Any] = {
        "headline": headline(organisation.name, limits_now, bounds_now),
        "limit_rows": limit_rows(limits_now, holdings),
        "bound_rows": bound_rows(bounds_now),
    }
    if actor.is_operator:
        context |= {
            "limits_form": tried.get("limits")
            or LimitsForm(
                initial=limits_initial(organisation.limits, organisation.limits_revision),
                held=holdings,
                prefix="limits",
            ),
            "bounds_form": tried.get("bounds")
            or BoundsForm(initial=bounds_initial(bounds_now, organisation.bounds_revision), prefix="bounds"),
        }
    return shown(request, "limits", actor, organisation, context, status=status)
