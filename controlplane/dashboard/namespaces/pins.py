"""List, create and remove pins of a namespace. A pin's content is never shown again."""

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
from controlplane.dashboard.frame.pages import FORMS, page
from controlplane.dashboard.frame.states import Tag, tag_of
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


@page(methods=FORMS)
def pins(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    access = inside(request, org, ns, PUBLISH if request.method == "POST" else READ)
    form = PinForm(request.POST) if request.method == "POST" else PinForm()
    if form.is_bound and form.is_valid() and _made(access, form):
        messages.success(request, f"{form.cleaned_data['name']} is pinned. Its content is not shown again.")
        return redirect("pins", org, ns)
    return render(
        request,
        "dashboard/namespaces/pins.html",
        {**namespace_frame(request, access), **_listed(access, request.GET.get("page", "1")), "form": form},
        status=422 if form.is_bound else 200,
    )


def _listed(access: Inside, number: str) -> dict[str, Any]:
    pin_page: Page[Pin] = Paginator(
        pins_of(access.namespace).defer("sealed_content").order_by("name"), ON_A_PAGE
    ).get_page(number)
    now = timezone.now()
    policy = policy_in_force(Place(access.namespace.organisation, access.namespace)).effective.values
    total, has_room = pin_page.paginator.count, policy["pin_share"] > 0
    engines = agents_living().filter(group=access.namespace.group_id, kind="engine")
    abouts = list(engines.values_list("about", flat=True))
    models = sorted({model["name"] for about in abouts for model in about.get("models", [])})
    pin_states = pins_held(access.namespace, [pin.pk for pin in pin_page])
    return {
        "rows": [
            (
                pin,
                pin_tag(pin, has_room=has_room, now=now),
                [(pin_state, held_tag(pin_state)) for pin_state in pin_states.get(pin.pk, ())],
            )
            for pin in pin_page
        ],
        "shown": pin_page,
        "headline": headline(total, policy["pin_share"], len(abouts), access.namespace.slug),
        "is_without_room": total > 0 and not policy["pin_share"],
        "models": models,
        "may_publish": may(access.actor, PUBLISH, access.namespace.organisation),
    }


def headline(total: int, share: float, agents: int, slug: str) -> str:
    if not total:
        return f"Nothing is pinned in {slug}"
    verb, room = "is" if total == 1 else "are", f"{100 * share:g} % of each pool"
    if not share:
        return f"{counted(total, 'pin')} {verb} wanted, and the policy gives pins no room"
    return f"{counted(total, 'pin')} {verb} wanted on {counted(agents, 'agent')}, in at most {room}"


def pin_tag(pin: Pin, *, has_room: bool, now: datetime) -> Tag:
    if pin.expires_at is not None and pin.expires_at <= now:
        return Tag("ended", "warn")
    return Tag("wanted", "ok") if has_room else Tag("no room", "warn")


def held_tag(pin_state: PinHeld) -> Tag:
    """Return a pin's state as an agent last reported it."""
    if pin_state.is_warming:
        return Tag("being warmed", "info")
    if pin_state.state != "active":
        return tag_of("pin", pin_state.state)
    if pin_state.wanted_tokens is not None and pin_state.resident_tokens >= pin_state.wanted_tokens:
        return Tag("held", "ok")
    return Tag("held in part", "warn") if pin_state.resident_tokens else Tag("waits to be warmed", "warn")


def _made(access: Inside, form: PinForm) -> bool:
    cleaned = form.cleaned_data
    try:
        pin_create(
            actor=access.actor,
            namespace=access.namespace,
            name=cleaned["name"],
            model=cleaned["model"],
            content_kind=cleaned["kind"],
            content=cleaned["read"],
            expires_at=cleaned["expires_at"],
        )
    except (InvalidFields, Conflict) as error:
        form.refuse(error.problems)
        return False
    return True


@page(methods=FORMS)
def pin_end(request: HttpRequest, org: str, ns: str, pin: UUID) -> HttpResponse:
    access = inside(request, org, ns, PUBLISH)
    pinned = pin_for(access.namespace, pin)
    form = ConfirmedForm(request.POST if request.method == "POST" else None, name=pinned.name)
    if form.is_bound and form.is_valid():
        pin_delete(actor=access.actor, pin=pinned)
        messages.success(request, f"{pinned.name} is not pinned any more.")
        return redirect("pins", org, ns)
    context = {**namespace_frame(request, access), "pin": pinned, "form": form}
    return render(request, "dashboard/namespaces/pin_end.html", context, status=422 if form.is_bound else 200)
