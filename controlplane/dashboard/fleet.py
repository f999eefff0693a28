"""The Fleet page: every agent with what it holds and what is wrong with it, and the rollouts under way."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.dashboard.fleet_rows import (
    AgentRow,
    RolloutRow,
    advice,
    agent_row,
    headline,
    rollout_row,
    troubles,
    worst_first,
)
from controlplane.dashboard.requests import user_of
from controlplane.dashboard.views import not_found
from controlplane.fleet import selectors
from controlplane.fleet.canaries import NEVER, isolations_read
from controlplane.fleet.models import OperationStep
from controlplane.fleet.views import agent_view
from controlplane.live.selectors import pulse_latest
from controlplane.rollouts.selectors import rollouts_open
from controlplane.rollouts.views import rollout_view, rollouts_shown

MOST_SHOWN = 200


@require_safe
@login_required
def fleet(request: HttpRequest) -> HttpResponse:
    if not user_of(request).is_operator:
        return not_found(request)
    pulse = pulse_latest()
    return render(request, "dashboard/fleet.html", {**_fleet(timezone.now()), "seq": pulse.seq if pulse else 0})


@require_safe
def fleet_now(request: HttpRequest) -> HttpResponse:
    """The part that HTMX refreshes whenever something moved."""
    if not request.user.is_authenticated:
        # The session has ended under an open page: it reloads as a whole, or sign-in would appear inside a panel.
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    if not user_of(request).is_operator:
        return not_found(request)
    return render(request, "dashboard/_fleet.html", {**_fleet(timezone.now()), "swapped": True})


def _fleet(now: datetime) -> dict[str, Any]:
    agents, rollouts = _agents(now), _rollouts(now)
    return {
        "headline": headline(agents),
        "advice": advice(agents, rollouts),
        "troubles": troubles(agents),
        "agents": agents[:MOST_SHOWN],
        "unshown": len(agents) - len(agents[:MOST_SHOWN]),
        "rollouts": rollouts,
        "observed_at": now,
    }


def _agents(now: datetime) -> list[AgentRow]:
    cadence = selectors.fleet_cadence_seconds()
    views = [agent_view(one, now=now, cadence=cadence) for one in selectors.agents_living().order_by("id")]
    probed = isolations_read([one["id"] for one in views], now=now)
    return worst_first([agent_row(one, probed.get(one["id"], NEVER)) for one in views])


def _rollouts(now: datetime) -> list[RolloutRow]:
    rows: Iterable[Any] = rollouts_shown(rollouts_open().order_by("-created_at"))
    found = [rollout_view(one, one.findings, is_operator=True) for one in rows]
    steps = OperationStep.objects.filter(operation__in=[one["operation"] for one in found if one["operation"]])
    done = Count("pk", filter=Q(state=OperationStep.State.DONE))
    counts = {one["operation"]: one for one in steps.values("operation").annotate(done=done, all=Count("pk"))}
    return [rollout_row(one, counts.get(one["operation"], {"done": 0, "all": 0}), now=now) for one in found]
