"""Pins of a namespace: listed, made and taken away. What they hold is never shown again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from controlplane.analytics.held import pins_held
from controlplane.analytics.models import PinHeld
from controlplane.dashboard.fleet.rows import Tag
from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.pages import FORMS, page
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.namespaces.forms import ConfirmedForm, PinForm
from controlplane.dashboard.namespaces.frames import Inside, inside, may, namespace_frame
from controlplane.fleet.selectors import agents_living
from tenants.access import PUBLISH, READ, pin_for, pins_of
from tenants.errors import Conflict, InvalidFields
from tenants.levels import Place
from tenants.models import Pin
from tenants.selectors import policy_in_force
from tenants.services.pins import pin_create, pin_delete

ON_A_PAGE = 50
KINDS = {"messages": "messages", "prompt": "text", "token_ids": "tokens"}


STATES = {
    "content_missing": Tag("content missing", "warn"),
    "over_budget": Tag("no room", "warn"),
    "expired": Tag("ended", "warn"),
    "disabled": Tag("caching is off", "warn"),
    "refused": Tag("refused", "bad"),
    "purged": Tag("purged", "warn"),
}


@dataclass(frozen=True, slots=True)
class PinOnAgent:
    """As it last told."""

    agent: str
    state: Tag
    amount: str
    why: str
    told_at: datetime


@dataclass(frozen=True, slots=True)
class PinRow:
    id: UUID
    name: str
    model: str
    holds: str
    state: Tag
    expires_at: datetime | None
    created_by: str
    created_at: datetime
    agents: tuple[PinOnAgent, ...] = ()


@page(methods=FORMS)
def pins(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    found = inside(request, org, ns, PUBLISH if request.method == "POST" else READ)
    form = PinForm(request.POST) if request.method == "POST" else PinForm()
    if form.is_bound and form.is_valid() and _made(found, form):
        messages.success(request, f"{form.cleaned_data['name']} is pinned. Its content is not shown again.")
        return redirect("pins", org, ns)
    return render(
        request,
        "dashboard/namespaces/pins.html",
        {**namespace_frame(request, found), **_listed(found, request.GET.get("page", "1")), "form": form},
        status=422 if form.is_bound else 200,
    )


def _listed(found: Inside, number: str) -> dict[str, Any]:
    shown: Page[Pin] = Paginator(pins_of(found.namespace).defer("sealed_content").order_by("name"), ON_A_PAGE).get_page(
        number
    )
    now = timezone.now()
    policy = policy_in_force(Place(found.namespace.organisation, found.namespace)).effective.values
    total = shown.paginator.count
    engines = agents_living().filter(group=found.namespace.group_id, kind="engine")
    abouts = list(engines.values_list("about", flat=True))
    models = sorted({one["name"] for about in abouts for one in about.get("models", [])})
    held = pins_held(found.namespace, [one.pk for one in shown])
    return {
        "rows": [pin_row(one, has_room=policy["pin_share"] > 0, now=now, held=held.get(one.pk, ())) for one in shown],
        "shown": shown,
        "headline": headline(total, policy["pin_share"], len(abouts), found.namespace.slug),
        "is_without_room": total > 0 and not policy["pin_share"],
        "models": models,
        "may_publish": may(found.actor, PUBLISH, found.namespace.organisation),
    }


def headline(total: int, share: float, agents: int, slug: str) -> str:
    if not total:
        return f"Nothing is pinned in {slug}"
    is_, room = "is" if total == 1 else "are", f"{100 * share:g} % of each pool"
    if not share:
        return f"{counted(total, 'pin')} {is_} wanted, and the policy gives pins no room"
    return f"{counted(total, 'pin')} {is_} wanted on {counted(agents, 'agent')}, in at most {room}"


def pin_row(pin: Pin, *, has_room: bool, now: datetime, held: Sequence[PinHeld] = ()) -> PinRow:
    has_ended = pin.expires_at is not None and pin.expires_at <= now
    wanted = Tag("wanted", "ok") if has_room else Tag("no room", "warn")
    return PinRow(
        id=pin.pk,
        name=pin.name,
        model=pin.model,
        holds=f"{bytes_text(pin.content_bytes)} of {KINDS[pin.content_kind]}",
        state=Tag("ended", "warn") if has_ended else wanted,
        expires_at=pin.expires_at,
        created_by=pin.created_by,
        created_at=pin.created_at,
        agents=tuple(map(pin_on_agent, held)),
    )


def pin_on_agent(held: PinHeld) -> PinOnAgent:
    there = f"{held.resident_tokens:,}"
    if held.wanted_tokens is not None and held.resident_tokens < held.wanted_tokens:
        there = f"{there} of {held.wanted_tokens:,}"
    amount = f"{there} tokens, {bytes_text(held.resident_bytes)}" if held.wanted_tokens is not None else ""
    return PinOnAgent(held.agent, pin_state(held), amount, held.problem, held.at)


def pin_state(held: PinHeld) -> Tag:
    if held.is_warming:
        return Tag("being warmed", "info")
    if held.state != "active":
        return STATES.get(held.state, Tag(held.state, "info"))
    if held.wanted_tokens is not None and held.resident_tokens >= held.wanted_tokens:
        return Tag("held", "ok")
    return Tag("held in part", "warn") if held.resident_tokens else Tag("waits to be warmed", "warn")


def _made(found: Inside, form: PinForm) -> bool:
    told = form.cleaned_data
    try:
        pin_create(
            actor=found.actor,
            namespace=found.namespace,
            name=told["name"],
            model=told["model"],
            content_kind=told["kind"],
            content=told["read"],
            expires_at=told["expires_at"],
        )
    except (InvalidFields, Conflict) as error:
        form.refuse(error.problems)
        return False
    return True


@page(methods=FORMS)
def pin_end(request: HttpRequest, org: str, ns: str, pin: UUID) -> HttpResponse:
    found = inside(request, org, ns, PUBLISH)
    pinned = pin_for(found.namespace, pin)
    is_sent = request.method == "POST"
    form = ConfirmedForm(request.POST, slug=pinned.name) if is_sent else ConfirmedForm(slug=pinned.name)
    if form.is_bound and form.is_valid():
        pin_delete(actor=found.actor, pin=pinned)
        messages.success(request, f"{pinned.name} is not pinned any more.")
        return redirect("pins", org, ns)
    context = {
        **namespace_frame(request, found),
        "pin": pin_row(pinned, has_room=True, now=timezone.now()),
        "form": form,
    }
    return render(request, "dashboard/namespaces/pin_end.html", context, status=422 if form.is_bound else 200)
