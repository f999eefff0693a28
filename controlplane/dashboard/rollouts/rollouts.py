"""Rollouts: all of them, and one with its steps, its guards, and what may be done with it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.db.models import Case, Count, IntegerField, Q, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from controlplane.dashboard.frame.pages import FORMS, operator_of, page, part
from controlplane.dashboard.frame.requests import STOP_ASKING
from controlplane.dashboard.organisations.paging import asked, pager
from controlplane.dashboard.rollouts.facts import contents, deeds, events, rollout_now, seen_as
from controlplane.dashboard.rollouts.rows import RolloutLine, list_advice, list_headline, rollout_line
from controlplane.fleet.models import OperationStep
from controlplane.rollouts import selectors, services
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.trail import rollout_records
from controlplane.rollouts.views import rollout_detail, rollout_view, rollouts_shown
from tenants.actor import Actor
from tenants.audit import record_view
from tenants.errors import Conflict, InvalidFields, NotFound, StaleRevision

DEEDS: Final[Mapping[str, Callable[..., Rollout]]] = {
    "pause": services.rollout_pause,
    "resume": services.rollout_resume,
    "promote": services.rollout_promote,
    "abort": services.rollout_abort,
}
DONE: Final = {
    "pause": "It is paused: nobody else is reached until it is resumed.",
    "resume": "It goes on.",
    "promote": "It goes to the next step.",
    "abort": "It is taken back: what was before is on its way to every agent.",
}


@page()
def rollouts(request: HttpRequest) -> HttpResponse:
    of, now = asked(request.GET.dict()), timezone.now()
    rows = selectors.rollouts_visible(operator_of(request))
    found = rows.filter(place__icontains=of.find) if of.find else rows
    pages = pager(of, found.count())
    under_way = dict(selectors.rollouts_open().values_list("state").annotate(Count("pk")))
    context = {
        "headline": list_headline(under_way.get("running", 0), under_way.get("paused", 0)),
        "advice": list_advice(pages.total, of.find),
        "of": of,
        "pager": pages,
        "rows": _lines(found, pages.start, pages.end, now),
        "observed_at": now,
    }
    return render(request, "dashboard/rollouts/rollouts.html", context)


def _lines(found: Any, start: int, end: int, now: datetime) -> list[RolloutLine]:
    """Those under way first, then the newest."""
    is_over = Case(When(state__in=Rollout.OPEN, then=Value(0)), default=Value(1), output_field=IntegerField())
    rows: Any = rollouts_shown(found).annotate(is_over=is_over).order_by("is_over", "-created_at", "-pk")[start:end]
    seen = [rollout_view(one, one.findings, is_operator=True) for one in rows]
    counts = acknowledgements([one["operation"] for one in seen if one["operation"]])
    return [rollout_line(one, counts.get(one["operation"], {"done": 0, "all": 0}), now=now) for one in seen]


def acknowledgements(operations: list[UUID]) -> dict[Any, Mapping[str, int]]:
    """Of each operation how many agents it has, and how many have done their part."""
    steps = OperationStep.objects.filter(operation__in=operations)
    done = Count("pk", filter=Q(state=OperationStep.State.DONE))
    return {one["operation"]: one for one in steps.values("operation").annotate(done=done, all=Count("pk"))}


@page()
def rollout(request: HttpRequest, rollout: UUID) -> HttpResponse:
    actor = operator_of(request)
    return _shown(request, actor, selectors.rollout_for(actor, rollout))


@part
def rollout_part(request: HttpRequest, rollout: UUID) -> HttpResponse:
    """What moves, for HTMX; with what may be done and what became of it, where it has gone on since it was asked."""
    actor = operator_of(request)
    try:
        found = selectors.rollout_for(actor, rollout)
    except NotFound:  # forgotten by now: what stands there stays, and nobody asks on
        return HttpResponse(status=STOP_ASKING, headers={"HX-Reswap": "none"})
    now = _now(found, actor)
    has_moved = request.GET.get("seen") != now["now"].seen
    more = _still(found, actor, now) if has_moved else {}
    context = {"rollout": found, "swapped": True, "has_moved": has_moved, **now, **more}
    status = STOP_ASKING if now["now"].is_over else 200
    return render(request, "dashboard/rollouts/_rollout.html", context, status=status)


@page(methods=FORMS)  # a refused deed stands at this address: whoever reloads it sees the rollout
def rollout_deed(request: HttpRequest, rollout: UUID, deed: str) -> HttpResponse:
    """One of DEEDS. Refused where the rollout has gone on since the page was shown, or its name is not typed."""
    actor = operator_of(request)
    found = selectors.rollout_for(actor, rollout)
    if deed not in DEEDS:
        raise NotFound("page")
    if request.method != "POST":
        return redirect("rollout", rollout)
    typed = request.POST.get("confirm", "").strip()
    refused = _refused(found, actor, deed, request.POST.get("seen", ""), typed)
    if not refused:
        try:
            DEEDS[deed](actor=actor, rollout=found)
        except (Conflict, InvalidFields) as error:
            refused = " ".join(f"{one.message[:1].upper()}{one.message[1:]}." for one in error.problems)
        except StaleRevision as error:
            refused = f"{error}."
        else:
            messages.success(request, DONE[deed])
            return redirect("rollout", found.pk)
    tried = {"deed": deed, "typed": typed[:200], "refused": refused}
    return _shown(request, actor, selectors.rollout_for(actor, rollout), status=422, **tried)


def _refused(found: Rollout, actor: Actor, deed: str, seen: str, typed: str) -> str:
    """Why not, before anything is asked of the services."""
    if seen != seen_as({"state": found.state, "step": found.step}):
        return "It has gone on since this page was shown. Look where it is now; nothing was done."
    if deed == "abort" and typed != found.place:
        return (
            f"“{typed[:80]}” is not {found.place}: nothing was done."
            if typed
            else f"Type {found.place}: nothing was done."
        )
    return ""


def _shown(request: HttpRequest, actor: Actor, found: Rollout, *, status: int = 200, **tried: str) -> HttpResponse:
    now = _now(found, actor)
    said = selectors.policies_said(found)
    base, (policy, note) = said.get(found.base_revision, ({}, ""))[0], said.get(found.revision, ({}, ""))
    context = {
        "rollout": found,
        "tried": tried,
        "contents": contents(now["detail"], base, policy, note),
        **now,
        **_still(found, actor, now),
    }
    return render(request, "dashboard/rollouts/rollout.html", context, status=status)


def _now(found: Rollout, actor: Actor) -> dict[str, Any]:
    at = timezone.now()
    detail = rollout_detail(found, actor)
    return {"now": rollout_now(detail, now=at), "detail": detail, "observed_at": at}


def _still(found: Rollout, actor: Actor, now: Mapping[str, Any]) -> dict[str, Any]:
    """What changes only when it goes on."""
    return {
        "deeds": deeds(now["detail"], total=len(now["detail"]["agents"])),
        "events": events(map(record_view, rollout_records(actor, found))),
    }
