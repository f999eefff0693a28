"""Alerts, the worst first, which users acknowledge and silence. Members see their organisation's alerts."""

from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from controlplane.alerts import selectors, services
from controlplane.alerts.definitions import METRICS
from controlplane.alerts.models import Alert
from controlplane.alerts.views import alert_shown
from controlplane.dashboard.alerts.forms import AcknowledgeForm, AlertForm, SilenceForm
from controlplane.dashboard.alerts.rows import AlertRow, event_words, headline, is_late
from controlplane.dashboard.frame.pages import FORMS, actors_of, page, part
from controlplane.dashboard.frame.paging import page_asked, pager
from controlplane.dashboard.frame.requests import user_of
from controlplane.live.selectors import pulse_latest
from tenants.access import PUBLISH, STATS_READ, permit, permit_anywhere
from tenants.actor import Actor
from tenants.errors import InvalidFields, NotFound, NotPermitted, OrganisationSuspended
from tenants.models import Organisation

REFUSED = 422
STATES = ("firing", "over")


@page()
def alerts(request: HttpRequest) -> HttpResponse:
    actors = actors_of(request)
    context = {**_listed(request, actors), **_heard(request, actors)}
    return render(request, "dashboard/alerts/alerts.html", context)


@part
def alerts_now(request: HttpRequest) -> HttpResponse:
    """Render the changing part of the list's current page."""
    context = {**_listed(request, actors_of(request)), "swapped": True}
    return render(request, "dashboard/alerts/_alerts.html", context)


def _listed(request: HttpRequest, actors: list[Actor]) -> dict[str, Any]:
    now = timezone.now()
    state = request.GET.get("state", "")
    list_request = page_asked(request.GET, state=state if state in STATES else "")
    visible = _visible(actors)
    counts = selectors.alerts_counts(visible, now=now)
    is_over = state == "over"
    rows = (
        visible.filter(state=Alert.State.RESOLVED).order_by("-number")
        if is_over
        else selectors.alerts_worst_first(visible, now=now)
    )
    pages = pager(list_request, rows, counts["over" if is_over else "firing"])
    evaluation = selectors.evaluation_newest()
    return {
        "headline": headline(counts),
        "counts": counts,
        "rows": [_row(alert, actors, now) for alert in pages],
        "pager": pages,
        "is_over": is_over,
        "evaluated_at": evaluation and evaluation.at,
        "is_late": evaluation is not None and is_late(evaluation.at, now),
        "is_operator": user_of(request).is_operator,
        "now_address": f"{reverse('alerts-now')}{list_request.query(page=list_request.page)}",
    }


def _heard(request: HttpRequest, actors: list[Actor]) -> dict[str, Any]:
    """Return the socket that keeps the page current: the fleet's, or the first organisation's."""
    if user_of(request).is_operator:
        pulse = pulse_latest()
        return {"heard": "/ws/live/fleet", "needs": "pulse", "seq": pulse.seq if pulse else 0}
    slugs = Organisation.objects.filter(pk__in=[actor.organisation_id for actor in actors]).order_by("slug")
    first_slug = slugs.values_list("slug", flat=True).first()
    return {"heard": f"/ws/live/orgs/{first_slug}" if first_slug else "", "needs": "numbers", "seq": 0}


@page(methods=FORMS)
def alert(request: HttpRequest, alert: UUID) -> HttpResponse:
    actor, stored_alert = _found(actors_of(request), alert)
    if request.method != "POST":
        return _page(request, actor, stored_alert)
    permit_anywhere(actor, PUBLISH)
    action = request.POST.get("do", "")
    if action == "silence":
        return _silence(request, actor, stored_alert)
    if action == "lift":
        services.alert_silence(actor=actor, alert=stored_alert, until=None)
        messages.success(request, f"The silence of {stored_alert.place} is lifted: what fires is told again.")
        return redirect("alert", stored_alert.public_id)
    return _acknowledge(request, actor, stored_alert)


def _acknowledge(request: HttpRequest, actor: Actor, alert: Alert) -> HttpResponse:
    form = AcknowledgeForm(request.POST)
    if form.is_valid():
        try:
            services.alert_acknowledge(actor=actor, alert=alert, note=form.cleaned_data["note"])
        except InvalidFields as error:
            form.refuse(error.problems)
        else:
            messages.success(request, f"You look after “{alert.rule_name}” of {alert.place}.")
            return redirect("alert", alert.public_id)
    return _page(request, actor, alert, acknowledge=form, status=REFUSED)


def _silence(request: HttpRequest, actor: Actor, alert: Alert) -> HttpResponse:
    form = SilenceForm(request.POST)
    if form.is_valid():
        until = timezone.now() + timedelta(seconds=int(form.cleaned_data["seconds"]))
        try:
            services.alert_silence(actor=actor, alert=alert, until=until)
        except InvalidFields as error:
            form.refuse(error.problems)
        else:
            messages.success(request, f"“{alert.rule_name}” of {alert.place} is silenced until {until:%F %R} UTC.")
            return redirect("alert", alert.public_id)
    return _page(request, actor, alert, silence=form, status=REFUSED)


def _page(
    request: HttpRequest,
    actor: Actor,
    alert: Alert,
    *,
    acknowledge: AlertForm | None = None,
    silence: AlertForm | None = None,
    status: int = 200,
) -> HttpResponse:
    now = timezone.now()
    events = selectors.alerts_events([alert])[alert.pk]
    view = alert_shown(alert, events, actor)
    why_not = _may(actor)
    context: dict[str, Any] = {
        "alert": AlertRow(view, alert.by_operator, now),
        "events": [(event, *event_words(event, METRICS[alert.metric].unit)) for event in reversed(view["history"])],
        "rule": view["rule_id"],
        "acknowledge": acknowledge or AcknowledgeForm(),
        "silence": silence or SilenceForm(),
        "why_not": why_not,
        "may_silence": actor.is_operator or not alert.by_operator,
        "is_operator": actor.is_operator,
    }
    return render(request, "dashboard/alerts/alert.html", context, status=status)


def _may(actor: Actor) -> str:
    """Return why this reader may not act on alerts; empty if they may."""
    try:
        permit_anywhere(actor, PUBLISH)
    except OrganisationSuspended:
        return "Your organisation is suspended: alerts can be read, not changed."
    except NotPermitted:
        return "Editors and admins of your organisation may acknowledge and silence. Ask one of them."
    return ""


def _visible(actors: list[Actor]) -> "QuerySet[Alert]":
    """Return the alerts that any of the user's actors may see."""
    if not actors:
        return Alert.objects.none()
    for actor in actors:
        permit(actor, STATS_READ)
    return reduce(or_, [selectors.alerts_visible(actor) for actor in actors])


def _found(actors: list[Actor], alert_id: UUID) -> tuple[Actor, Alert]:
    for actor in actors:
        permit(actor, STATS_READ)
        try:
            return actor, selectors.alert_for(actor, alert_id)
        except NotFound:
            continue
    raise NotFound("alert")


def _row(alert: Alert, actors: list[Actor], now: Any) -> AlertRow:
    actor = next(actor for actor in actors if actor.organisation_id in (None, alert.organisation_id))
    return AlertRow(alert_shown(alert, [], actor), alert.by_operator, now)
