"""The note on operators' pages about the demo's traffic, and the switch that turns it on or off."""

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.analytics.demo_traffic import demo_traffic_now, demo_traffic_put, demo_traffic_state
from controlplane.dashboard.frame.pages import operator_of, page
from controlplane.dashboard.frame.requests import next_page
from tenants.access import OPERATE, permit

WORDS = {
    "sends": "Demo traffic is on: about one request in two seconds, counted like anybody’s.",
    "paused": "Demo traffic is off, and stays off over restarts.",
    "waits": "Demo traffic is on and waits for the gateway.",
}
NOT_HERE = "No demo traffic runs here."


@dataclass(frozen=True, slots=True)
class TrafficNote:
    words: str
    is_here: bool
    is_on: bool


def traffic_note() -> TrafficNote:
    state = demo_traffic_state()
    return TrafficNote(NOT_HERE if state is None else WORDS[state], state is not None, demo_traffic_now().is_on)


@page(methods=["POST"])
def switch(request: HttpRequest) -> HttpResponse:
    actor, is_on = operator_of(request), request.POST.get("is_on") == "yes"
    permit(actor, OPERATE)
    demo_traffic_put(actor=actor, is_on=is_on, now=timezone.now())
    messages.success(request, f"Demo traffic is {'on' if is_on else 'off'}. It heeds that within seconds.")
    return redirect(next_page(request))
