"""The forecast curve beside a namespace's TTL, loaded after the page because it is expensive."""

from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.analytics.whatif import what_if
from controlplane.dashboard.frame.pages import page, part
from controlplane.dashboard.policies.at import At, at
from controlplane.dashboard.policies.curves import Curve, curve
from controlplane.dashboard.policies.fields import INHERITED, UNSENT, Typed, read
from engine_agent.contracts.policy_fields import FIELDS
from tenants.access import STATS_READ, organisation_for
from tenants.levels import levels_of
from tenants.policy import effective_values

FORETOLD = ("ttl_seconds", "ttl_mode", "limit_share")


@page()
def policy_what_if(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    """Render the curve on its own page, for browsers without scripts."""
    scope, ttl_curve = _found(request, org, ns)
    return render(request, "dashboard/policies/what_if.html", {**scope.frame(request), "curve": ttl_curve})


@part
def policy_what_if_now(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    _, ttl_curve = _found(request, org, ns)
    return render(request, "dashboard/policies/_what_if.html", {"curve": ttl_curve})


def _found(request: HttpRequest, org: str, ns: str) -> tuple[At, Curve]:
    scope = at(request, org, ns)
    organisation_for(scope.actor, org, STATS_READ)
    assert scope.place.namespace is not None, "the address names one"
    try:
        draft_values = _asked(scope, dict(request.GET.lists()))
    except ValidationError as error:
        return scope, curve({}, error.messages[0])
    return scope, curve(what_if(scope.place.namespace, **draft_values))


def _asked(scope: At, typed: Typed) -> dict[str, Any]:
    """Return the form's values, the inherited ones for empty fields; fields not sent stay as in force."""
    inherited = effective_values([level.policy for level in levels_of(scope.place)[:-1]])
    draft_values = {}
    for name in FORETOLD:
        value = read(FIELDS[name], name, typed)
        if value is not UNSENT:
            draft_values[name] = inherited[name] if value is INHERITED else value
    return draft_values
