"""The analytics of one organisation: its own page, a part of its members' start page, and CSV."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.analytics.selectors import Scope
from controlplane.analytics.stats import LIVE_WINDOW, live_message, live_message_of, series_answer, stats_answer
from controlplane.analytics.tables import OF_SERIES, OF_STATS, series_rows, stats_rows
from controlplane.common.csv_text import csv_response
from controlplane.dashboard.analytics import facts, key_parts
from controlplane.dashboard.analytics.marks import marks_of, marks_title
from controlplane.dashboard.analytics.reading import read
from controlplane.dashboard.analytics.revisions import revisions_touching
from controlplane.dashboard.frame import navigation
from controlplane.dashboard.frame.pages import actor_within, page, part
from controlplane.dashboard.frame.tiles import tile
from controlplane.live.listeners import organisation_group
from tenants.access import STATS_READ, organisation_for
from tenants.actor import Actor
from tenants.models import Organisation


@page()
def analytics(request: HttpRequest, org: str) -> HttpResponse:
    actor, organisation = _whose(request, org)
    window = facts.window_asked(request.GET.get("window"))
    numbers = numbers_of(actor, organisation, window, address=request.path)
    message = numbers["told"] or live_message(organisation_group(organisation.pk))
    live_tile = tile(message, slug=org, title="", path=f"/ws/live/orgs/{org}")
    context = {
        "organisation": organisation,
        "sections": navigation.sections(actor, org, request.path),
        "tile": live_tile,
        "headline": live_tile.fact or f"Nothing has been counted of {organisation.name or org} yet",
        **numbers,
    }
    return render(request, "dashboard/analytics/analytics.html", context)


@part
def analytics_now(request: HttpRequest, org: str) -> HttpResponse:
    """Render the numbers beside the tile one by one, so that details a user has opened stay open."""
    actor, organisation = _whose(request, org)
    window = facts.window_asked(request.GET.get("window"))
    context = numbers_of(actor, organisation, window, address="")
    return render(request, "dashboard/analytics/_now.html", {**context, "swapped": True})


@page()
def stats_csv(request: HttpRequest, org: str) -> HttpResponse:
    """Return the same table as the API's series."""
    actor, organisation = _whose(request, org)
    series = series_answer(_scope(actor, organisation), facts.window_asked(request.GET.get("window")), None)
    return csv_response(OF_SERIES, series_rows(series), name="stats-series")


@page()
def stats_parts_csv(request: HttpRequest, org: str) -> HttpResponse:
    """Return the same table as the API's stats: the total, then by namespace, model and key."""
    actor, organisation = _whose(request, org)
    stats = stats_answer(_scope(actor, organisation), facts.window_asked(request.GET.get("window")))
    return csv_response(OF_STATS, stats_rows(stats), name="stats")


def numbers_of(actor: Actor, organisation: Organisation, window: str, *, address: str) -> dict[str, Any]:
    """Return the template context. `address` is the page whose links choose another window."""
    slug = organisation.slug
    readings = read(_scope(actor, organisation), window)
    stats, now = readings.stats, readings.stats["as_of"]
    revisions = revisions_touching(actor, organisation, stats["from"], now=now)
    call = f"GET /api/v1/orgs/{slug}/stats?window={window}"
    title = facts.tokens_title(stats, window=window)
    marks = marks_of(revisions, seconds=stats["window_seconds"])
    return {
        "organisation": organisation,
        # The tile shows the live window; for another window the caller reads the live message.
        "told": live_message_of(stats) if window == LIVE_WINDOW else None,
        "numbers": {
            "as_of": now,
            "window": facts.WINDOWS[window],
            "windows": facts.WINDOWS,
            "address": address,
            "stats": stats,
            "rate_call": f"GET /api/v1/orgs/{slug}/stats?window=24h",
            "rate": facts.rate_of(stats, readings.series, readings.before, marks, window=window),
            "tokens_title": title,
            "bar": facts.tokens_bar(stats, title),
            "namespaces": facts.rows_of(stats["by_namespace"], "namespace", nothing=_nothing(window)),
            "models": facts.rows_of(stats["by_model"], "model", nothing="No model was asked"),
            "keys": facts.rows_of(
                key_parts.parts(stats["by_key"]),
                "key",
                nothing=(no_key := f"No key was used in the last {facts.WINDOWS[window]}"),
                title=key_parts.title(stats["by_key"], nothing=no_key),
            ),
            "keys_how": key_parts.HOW,
            "marks": revisions,
            "marks_title": marks_title(revisions, window=facts.WINDOWS[window]),
            "call": call,
            "now": f"{reverse('analytics-now', args=[slug])}?window={window}",
            "csv": f"{reverse('stats-csv', args=[slug])}?window={window}",
            "parts_csv": f"{reverse('stats-parts-csv', args=[slug])}?window={window}",
            "misses": reverse("misses", args=[slug]),
        },
    }


def _whose(request: HttpRequest, org: str) -> tuple[Actor, Organisation]:
    actor = actor_within(request, org)
    return actor, organisation_for(actor, org, STATS_READ)


def _scope(actor: Actor, organisation: Organisation) -> Scope:
    return Scope(organisation.pk, namespaces=actor.namespace_ids)


def _nothing(window: str) -> str:
    return f"No namespace was asked in the last {facts.WINDOWS[window]}"
