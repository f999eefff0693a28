"""Setting a time to live: a customer's of a namespace, an operator's of the fleet. The same deed as in the REST API."""

from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.dashboard.published import place_words
from controlplane.dashboard.requests import origin_of, user_of
from controlplane.dashboard.ttl_forms import TtlForm
from controlplane.dashboard.views import home_shown, not_found, problem
from controlplane.dashboard.words import duration
from controlplane.rollouts import services
from tenants.access import (
    OPERATE_PUBLISH,
    PUBLISH,
    actor_for_member,
    actor_for_operator,
    memberships_of,
    namespace_for,
    organisation_for,
    permit,
)
from tenants.actor import Actor
from tenants.errors import Conflict, InvalidFields, NotFound, NotPermitted, OutOfBounds, StaleRevision
from tenants.levels import FLEET, Place, level_of
from tenants.policy import Policy

WAYS = ["GET", "HEAD", "POST"]  # a refused form stands at this address: whoever reloads it goes home


@require_http_methods(WAYS)
@login_required
def namespace_ttl(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    if request.method != "POST":
        return redirect("home")
    try:
        actor = _actor(request, org)
        organisation = organisation_for(actor, org, PUBLISH)
        return _set(request, actor, Place(organisation, namespace_for(actor, organisation, ns)))
    except NotFound:
        return not_found(request)
    except NotPermitted as error:
        return problem(request, 403, "You may not do this", str(error))


@require_http_methods(WAYS)
@login_required
def fleet_ttl(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    if not user.is_operator:
        return not_found(request)
    if request.method != "POST":
        return redirect("home")
    actor = actor_for_operator(user, **origin_of(request))
    permit(actor, OPERATE_PUBLISH)
    return _set(request, actor, FLEET)


def _actor(request: HttpRequest, org: str) -> Actor:
    user = user_of(request)
    if user.is_operator:
        return actor_for_operator(user, **origin_of(request))
    member = memberships_of(user).filter(organisation__slug=org).first()
    if member is None:
        raise NotFound("organisation")
    return actor_for_member(member, **origin_of(request))


def _set(request: HttpRequest, actor: Actor, place: Place) -> HttpResponse:
    """Home again, with what happened; or with the form, still filled in, and what is wrong beside its field."""
    form = TtlForm(request.POST)
    if form.is_valid():
        outcome = _published(actor, place, form)
        if outcome is not None:
            return _home(request, place, outcome)
    return home_shown(request, tried={place.name: form}, status=422)


def _published(actor: Actor, place: Place, form: TtlForm) -> services.Outcome | None:
    level, seconds = level_of(place), form.cleaned_data["seconds"]
    if level.policy.get("ttl_seconds") == seconds:
        form.add_error("amount", f"It is {duration(seconds)} already: revision {level.revision} says so.")
        return None
    try:
        return services.policy_publish(
            actor=actor,
            place=place,
            policy=Policy.model_validate({**level.policy, "ttl_seconds": seconds}),
            expected=frozenset({form.cleaned_data["revision"]}),
            note=form.cleaned_data["note"],
        )
    except (OutOfBounds, InvalidFields, Conflict) as error:
        form.refuse(error.problems)
    except StaleRevision as error:
        told = (
            f"Revision {error.actual} was published meanwhile, and this page shows it now. Yours is kept: send it again"
        )
        form.add_error(None, f"{told} to publish it as revision {error.actual + 1}.")
    return None


def _home(request: HttpRequest, place: Place, outcome: services.Outcome) -> HttpResponse:
    if outcome.rollout is not None:
        return redirect(f"{reverse('home')}?{urlencode({'rollout': outcome.rollout.pk})}")
    revision = outcome.published.level.revision
    told = f"revision {revision} is published. No agent serves it yet; whoever joins gets it."
    messages.success(request, f"{place_words(place.name)}: {told}")
    return redirect("home")
