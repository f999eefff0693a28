"""The Fleet page: every agent with its snapshot and its problems, and the open rollouts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.analytics.agents import FleetPools, fleet_pools, hits_of_agents
from controlplane.dashboard.fleet.joining import address_of_ours, token_form
from controlplane.dashboard.fleet.pools import KINDS, fleet_bar, legend
from controlplane.dashboard.fleet.rows import (
    NO_HITS,
    AgentRow,
    advice,
    headline,
    troubles,
    worst_first,
)
from controlplane.dashboard.fleet.token_words import commands
from controlplane.dashboard.frame.pages import operator_of, page, part
from controlplane.dashboard.policies.enforcement_words import with_fleet_words
from controlplane.dashboard.rollouts.rollouts import rollout_rows
from controlplane.dashboard.rollouts.rows import RolloutRow
from controlplane.fleet import selectors
from controlplane.fleet.canaries import NEVER, isolations_read
from controlplane.fleet.in_force import fields_in_force
from controlplane.fleet.views import agent_view
from controlplane.live.selectors import pulse_latest
from controlplane.rollouts.selectors import rollouts_open
from controlplane.rollouts.views import rollouts_shown

MOST_SHOWN = 200
MOST_ROLLOUTS = 20


@page()
def fleet(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    pulse = pulse_latest()
    context = {
        **_fleet(timezone.now()),
        "commands": commands(address_of_ours(request), "ljt_…", kind=None, agent=""),
        "form": token_form(),
        "once": uuid4(),
        "seq": pulse.seq if pulse else 0,
    }
    return render(request, "dashboard/fleet/fleet.html", context)


@part
def fleet_now(request: HttpRequest) -> HttpResponse:
    """Render the part that HTMX refreshes on every change."""
    operator_of(request)
    return render(request, "dashboard/fleet/_fleet.html", {**_fleet(timezone.now()), "swapped": True})


def _fleet(now: datetime) -> dict[str, Any]:
    views = _views(now)
    names = [view["id"] for view in views]
    pools = fleet_pools(names, top=len(KINDS))
    agents, rollouts = _agents(views, pools, now), _rollouts(now)
    return {
        "headline": with_fleet_words(headline(agents, rollouts), views),
        "advice": advice(agents, rollouts),
        "troubles": troubles(agents),
        "agents": agents[:MOST_SHOWN],
        "unshown": len(agents) - len(agents[:MOST_SHOWN]),
        "legend": legend(pools),
        "rollouts": rollouts,
        "observed_at": now,
    }


def _views(now: datetime) -> list[dict[str, Any]]:
    cadence, in_force = selectors.fleet_cadence_seconds(), fields_in_force()
    living = selectors.agents_living().order_by("id")
    return [agent_view(agent, now=now, cadence=cadence, in_force=in_force) for agent in living]


def _agents(views: Sequence[dict[str, Any]], pools: FleetPools, now: datetime) -> list[AgentRow]:
    names = [view["id"] for view in views]
    probed, hits = isolations_read(names, now=now), hits_of_agents(names, now=now)
    rows = [
        AgentRow(
            view,
            probed.get(view["id"], NEVER),
            hits.get(view["id"], NO_HITS),
            fleet_bar(view["pool"], pools.by_agent.get(view["id"], ()), pools.top, view["computed_as"]),
        )
        for view in views
    ]
    return worst_first(rows)


def _rollouts(now: datetime) -> list[RolloutRow]:
    """Return the newest open rollouts; the page of rollouts lists all."""
    return rollout_rows(rollouts_shown(rollouts_open().order_by("-created_at"))[:MOST_ROLLOUTS], now=now)
