"""Set the TTL of a namespace (customers) or of the fleet (operators), through the same service as the REST API."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.dashboard.frame.pages import FORMS, actor_within, operator_of, page
from controlplane.dashboard.frame.words import duration
from controlplane.dashboard.home.ttl_forms import TtlForm
from controlplane.dashboard.home.views import home_shown
from controlplane.dashboard.policies.authors import was_published
from controlplane.dashboard.policies.published import after_publishing, not_served_words
from controlplane.rollouts import services
from tenants.access import OPERATE_PUBLISH, PUBLISH, namespace_for, organisation_for, permit
from tenants.actor import Actor
from tenants.errors import Conflict, InvalidFields, OutOfBounds, StaleRevision
from tenants.levels import FLEET, Place, level_of
from tenants.policy import Policy


@page(methods=FORMS)  # a refused form stays at this address; reloading it goes to the start page
def namespace_ttl(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    if request.method != "POST":
        return redirect("home")
    actor = actor_within(request, org)
    organisation = organisation_for(actor, org, PUBLISH)
    return _set(request, actor, Place(organisation, namespace_for(actor, organisation, ns)))


@page(methods=FORMS)
def fleet_ttl(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    if request.method != "POST":
        return redirect("home")
    permit(actor, OPERATE_PUBLISH)
    return _set(request, actor, FLEET)


def _set(request: HttpRequest, actor: Actor, scope: Place) -> HttpResponse:
    """Publish the TTL and redirect to the start page, or show the form again with its errors."""
    form = TtlForm(request.POST)
    if form.is_valid():
        outcome = _published(actor, scope, form)
        if outcome is not None:
            return after_publishing(request, outcome, reverse("home"), not_served_words(outcome, scope))
    return home_shown(request, tried={scope.name: form}, status=422)


def _published(actor: Actor, scope: Place, form: TtlForm) -> services.Outcome | None:
    level, seconds = level_of(scope), form.cleaned_data["seconds"]
    if level.policy.get("ttl_seconds") == seconds:
        form.add_error("amount", f"It is {duration(seconds)} already: revision {level.revision} says so.")
        return None
    try:
        return services.policy_publish(
            actor=actor,
            place=scope,
            policy=Policy.model_validate({**level.policy, "ttl_seconds": seconds}),
            expected=frozenset({form.cleaned_data["revision"]}),
            note=form.cleaned_data["note"],
        )
    except (OutOfBounds, InvalidFields, Conflict) as error:
        form.refuse(error.problems)
    except StaleRevision as error:
        explanation = (
            f"{was_published(level, error.actual, actor)}; this page shows it now. Yours is kept: send it again"
        )
        form.add_error(None, f"{explanation} to publish it as revision {error.actual + 1}.")
    return None
