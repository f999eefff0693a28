"""The operators' overview: the fleet's numbers of the last 24 hours, its agents, alerts and rollouts."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from controlplane.alerts.models import Alert
from controlplane.alerts.selectors import alerts_visible
from controlplane.alerts.views import alert_view
from controlplane.analytics.evictions import namespaces_there, pairs_of_fleet
from controlplane.analytics.movers import recent
from controlplane.analytics.selectors import Scope
from controlplane.analytics.stats import live_message_of
from controlplane.analytics.windows import window_of
from controlplane.dashboard.analytics import facts
from controlplane.dashboard.analytics.reading import read
from controlplane.dashboard.frame.pages import operator_of, part
from controlplane.dashboard.namespaces.evictions import fleet_title
from controlplane.dashboard.overview import rows as overview_rows
from controlplane.fleet import selectors
from controlplane.fleet.cadence import cadence_seconds
from controlplane.fleet.in_force import fields_in_force
from controlplane.fleet.views import agent_view
from controlplane.rollouts.selectors import rollouts_open
from controlplane.rollouts.views import rollout_view, rollouts_shown
from tenants.actor import Actor

WINDOW = "24h"
CALL = f"GET /api/v1/fleet/stats?window={WINDOW}"


@part
def overview_now(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    context = overview_of()
    return render(request, "dashboard/overview/_overview_now.html", {**context, "swapped": True})


@part
def overview_watched(request: HttpRequest) -> HttpResponse:
    """Render pools, alerts and rollouts alone: they change when no number does, and are cheap."""
    context = watched_of(operator_of(request))
    return render(request, "dashboard/overview/_overview_watched.html", {**context, "swapped": True})


def overview_of() -> dict[str, Any]:
    readings = read(Scope(None), WINDOW)
    title = facts.fleet_tokens_title(readings.stats, window=WINDOW)
    return {
        "numbers": {
            "as_of": readings.stats["as_of"],
            "window": facts.WINDOWS[WINDOW],
            "stats": readings.stats,
            "rate_call": CALL,
            "rate": facts.rate_of(readings.stats, readings.series, readings.before, (), window=WINDOW),
            "tokens_title": title,
            "bar": facts.tokens_bar(readings.stats, title),
            "call": CALL,
            "now": reverse("overview-now"),
        },
        "told": live_message_of(readings.stats),
        "movers": overview_rows.movers(recent.movement()),
        **_pairs(readings.stats["as_of"]),
    }


def _pairs(now: datetime) -> dict[str, Any]:
    pairs = pairs_of_fleet(window_of(WINDOW, now), most=overview_rows.MOST_LINES)
    pages = {pk: _page("namespace", *slugs) for pk, *slugs in namespaces_there({pair.victim_id for pair in pairs})}
    return {
        "pairs_title": fleet_title(pairs),
        "pairs": [(pair, pages.get(pair.victim_id, "")) for pair in pairs],
        "largest": max((pair.blocks for pair in pairs), default=0),
    }


def watched_of(actor: Actor) -> dict[str, Any]:
    now, row_limit, living = timezone.now(), overview_rows.MOST_LINES, list(selectors.agents_living().order_by("id"))
    cadence, in_force = cadence_seconds(len(living)), fields_in_force()
    agents = [agent_view(agent, now=now, cadence=cadence, in_force=in_force) for agent in living]
    firing = alerts_visible(actor).filter(state=Alert.State.FIRING)
    alert_views = [alert_view(alert) for alert in firing.order_by("-fired_at")[:row_limit]]
    rollouts = rollouts_shown(rollouts_open().order_by("-created_at"))[:row_limit]
    rollout_views = [rollout_view(rollout, (), is_operator=True) for rollout in rollouts]
    return {
        "pools": overview_rows.pools(agents),
        "alerts": _newest(alert_views, firing.count()),
        "rollouts": _newest(rollout_views, rollouts_open().count()),
    }


def _newest(rows: list[dict[str, Any]], total: int) -> dict[str, Any]:
    return {"rows": rows, "total": total, "unshown": total - len(rows)}


def _page(view: str, *arguments: Any) -> str:
    return reverse(view, args=[str(argument) for argument in arguments])
