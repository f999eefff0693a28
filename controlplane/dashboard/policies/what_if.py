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
    here, found = _found(request, org, ns)
    return render(request, "dashboard/policies/what_if.html", {**here.frame(request), "curve": found})


@part
def policy_what_if_now(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    _, found = _found(request, org, ns)
    return render(request, "dashboard/policies/_what_if.html", {"curve": found})


def _found(request: HttpRequest, org: str, ns: str) -> tuple[At, Curve]:
    here = at(request, org, ns)
    organisation_for(here.actor, org, STATS_READ)
    assert here.place.namespace is not None, "the address names one"
    try:
        asked = _asked(here, dict(request.GET.lists()))
    except ValidationError as error:
        return here, curve({}, error.messages[0])
    return here, curve(what_if(here.place.namespace, **asked))


def _asked(here: At, typed: Typed) -> dict[str, Any]:
    """Return the form's values, the inherited ones for empty fields; fields not sent stay as in force."""
    inherited = effective_values([one.policy for one in levels_of(here.place)[:-1]])
    asked = {}
    for name in FORETOLD:
        value = read(FIELDS[name], name, typed)
        if value is not UNSENT:
            asked[name] = inherited[name] if value is INHERITED else value
    return asked
