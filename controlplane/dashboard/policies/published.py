"""The message after publishing: how many agents have acknowledged the revision so far."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from controlplane.dashboard.frame.pages import part
from controlplane.dashboard.frame.requests import STOP_ASKING, user_of
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.fields import reason_words
from controlplane.dashboard.rollouts.words import place_words
from controlplane.fleet.models import OperationStep
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.selectors import rollouts_visible
from controlplane.rollouts.services import Outcome
from tenants.access import actor_for_member, actor_for_operator, memberships_of
from tenants.actor import Actor
from tenants.levels import Place
from tenants.models import User


@dataclass(frozen=True, slots=True)
class Published:
    id: UUID
    words: str
    done: int
    is_over: bool
    address: str  # the rollout's page; empty if the user may not open it


@part
def published(request: HttpRequest, rollout: UUID) -> HttpResponse:
    """Render the message alone for HTMX, or answer 204 if the page shows it already."""
    rollout_state = published_of(user_of(request), str(rollout))
    if rollout_state is None:  # access has ended: leave the page as it is and stop polling
        return HttpResponse(status=STOP_ASKING, headers={"HX-Reswap": "none"})
    if request.GET.get("seen") == str(rollout_state.done) and not rollout_state.is_over:
        return HttpResponse(status=204)
    status = STOP_ASKING if rollout_state.is_over else 200
    return render(request, "dashboard/policies/_published.html", {"published": rollout_state}, status=status)


def published_of(user: User, rollout: str) -> Published | None:
    """Return the rollout's state; None if the user may not see it."""
    try:
        pk = UUID(rollout)
    except ValueError:
        return None
    for actor in _actors(user):
        stored_rollout = rollouts_visible(actor).filter(pk=pk).first()
        if stored_rollout is not None:
            return _published(stored_rollout, reverse("rollout", args=[stored_rollout.pk]) if user.is_operator else "")
    return None


def _actors(user: User) -> Iterable[Actor]:
    return [actor_for_operator(user)] if user.is_operator else map(actor_for_member, memberships_of(user))


def _published(rollout: Rollout, address: str) -> Published:
    is_done = Q(state=OperationStep.State.DONE)
    steps = OperationStep.objects.filter(operation=rollout.operation_id)
    counts = steps.aggregate(done=Count("pk", filter=is_done), total=Count("pk"))
    is_over = rollout.state not in Rollout.OPEN
    return Published(rollout.pk, published_words(rollout, **counts), counts["done"], is_over, address)


def published_words(rollout: Rollout, *, done: int, total: int) -> str:
    begin = f"{place_words(rollout.place)}: revision {rollout.revision} is published."
    if rollout.state not in (*Rollout.OPEN, Rollout.State.DONE):
        return f"{begin} {reason_words(rollout.why)}".rstrip()
    if done == total:
        return f"{begin} {'All ' if total > 1 else ''}{counted(total, 'agent')} acknowledged it."
    onwards = (
        "it goes on step by step, while its guards are kept"
        if len(rollout.steps) > 1
        else "it is on its way to the others"
    )
    return f"{begin} {done} of {counted(total, 'agent')} acknowledged it so far; {onwards}."


def after_publishing(request: HttpRequest, outcome: Outcome, address: str, words: str) -> HttpResponse:
    """Redirect to the count of acknowledgements, or show `words` if there is no rollout to acknowledge."""
    if outcome.rollout is not None:
        return redirect(f"{address}?{urlencode({'rollout': outcome.rollout.pk})}")
    messages.success(request, words)
    return redirect(address)


def not_served_words(outcome: Outcome, scope: Place) -> str:
    revision = outcome.published.level.revision
    words = f"revision {revision} is published. No agent serves it yet; an agent that joins gets it."
    # By kind, because an organisation may be called "fleet".
    scope_name = "The fleet’s default" if scope.organisation is None else scope.name
    return f"{scope_name}: {words}"
