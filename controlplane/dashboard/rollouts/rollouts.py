"""The list of rollouts, and the page of one with its steps, guards and actions."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.db.models import Case, Count, IntegerField, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from controlplane.dashboard.frame.deeds import not_confirmed, problems_words
from controlplane.dashboard.frame.pages import FORMS, operator_of, page, part
from controlplane.dashboard.frame.paging import asked, pager
from controlplane.dashboard.frame.requests import STOP_ASKING
from controlplane.dashboard.rollouts.facts import contents, deeds, event_words, rollout_now, seen_as
from controlplane.dashboard.rollouts.rows import RolloutRow, list_advice, list_headline
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
    list_request, now = asked(request.GET.dict()), timezone.now()
    rows = selectors.rollouts_visible(operator_of(request))
    matches = rows.filter(place__icontains=list_request.find) if list_request.find else rows
    pages = pager(list_request, _listed(matches), matches.count())
    under_way = dict(selectors.rollouts_open().values_list("state").annotate(Count("pk")))
    context = {
        "headline": list_headline(under_way.get("running", 0), under_way.get("paused", 0)),
        "advice": list_advice(pages.total, list_request.find),
        "of": list_request,
        "pager": pages,
        "rows": rollout_rows(pages, now=now),
        "observed_at": now,
    }
    return render(request, "dashboard/rollouts/rollouts.html", context)


def _listed(rollouts: Any) -> Any:
    """Sort open rollouts first, then by age, newest first."""
    is_over = Case(When(state__in=Rollout.OPEN, then=Value(0)), default=Value(1), output_field=IntegerField())
    return rollouts_shown(rollouts).annotate(is_over=is_over).order_by("is_over", "-created_at", "-pk")


def rollout_rows(rows: Iterable[Any], *, now: datetime) -> list[RolloutRow]:
    views = [rollout_view(rollout, rollout.findings, is_operator=True) for rollout in rows]
    counts = selectors.acknowledgements([view["operation"] for view in views if view["operation"]])
    return [RolloutRow(view, *counts.get(view["operation"], (0, 0)), now) for view in views]


@page()
def rollout(request: HttpRequest, rollout: UUID) -> HttpResponse:
    actor = operator_of(request)
    return _shown(request, actor, selectors.rollout_for(actor, rollout))


@part
def rollout_part(request: HttpRequest, rollout: UUID) -> HttpResponse:
    """Render what changes, for HTMX; with actions and events if the rollout has moved since the last request."""
    actor = operator_of(request)
    try:
        stored_rollout = selectors.rollout_for(actor, rollout)
    except NotFound:  # deleted by now: leave the page as it is and stop polling
        return HttpResponse(status=STOP_ASKING, headers={"HX-Reswap": "none"})
    now = _now(stored_rollout, actor)
    has_moved = request.GET.get("seen") != now["now"]["seen"]
    changed_context = _still(stored_rollout, actor, now) if has_moved else {}
    context = {"rollout": stored_rollout, "swapped": True, "has_moved": has_moved, **now, **changed_context}
    status = STOP_ASKING if now["now"]["is_over"] else 200
    return render(request, "dashboard/rollouts/_rollout.html", context, status=status)


@page(methods=FORMS)  # a refused action stays at this address; reloading it shows the rollout
def rollout_deed(request: HttpRequest, rollout: UUID, deed: str) -> HttpResponse:
    """Perform one of DEEDS. Refuse it if the page is outdated, or the name is not typed."""
    actor = operator_of(request)
    stored_rollout = selectors.rollout_for(actor, rollout)
    if deed not in DEEDS:
        raise NotFound("page")
    if request.method != "POST":
        return redirect("rollout", rollout)
    typed = request.POST.get("confirm", "").strip()
    refused = _refused(stored_rollout, actor, deed, request.POST.get("seen", ""), typed)
    if not refused:
        try:
            DEEDS[deed](actor=actor, rollout=stored_rollout)
        except (Conflict, InvalidFields) as error:
            refused = problems_words(error.problems)
        except StaleRevision as error:
            refused = f"{error}."
        else:
            messages.success(request, DONE[deed])
            return redirect("rollout", stored_rollout.pk)
    tried = {"deed": deed, "typed": typed[:200], "refused": refused}
    return _shown(request, actor, selectors.rollout_for(actor, rollout), status=422, **tried)


def _refused(rollout: Rollout, actor: Actor, action: str, shown_state: str, typed: str) -> str:
    """Return why to refuse the action before any service is called; empty if allowed."""
    if shown_state != seen_as({"state": rollout.state, "step": rollout.step}):
        return "It has gone on since this page was shown. Look where it is now; nothing was done."
    return not_confirmed(typed, rollout.place) if action == "abort" else ""


def _shown(request: HttpRequest, actor: Actor, rollout: Rollout, *, status: int = 200, **tried: str) -> HttpResponse:
    now = _now(rollout, actor)
    policies = selectors.policies_said(rollout)
    base, (policy, note) = policies.get(rollout.base_revision, ({}, ""))[0], policies.get(rollout.revision, ({}, ""))
    title, changes = contents(now["detail"], base, policy)
    context = {
        "rollout": rollout,
        "tried": tried,
        "contents": {"title": title, "changes": changes, "note": note},
        **now,
        **_still(rollout, actor, now),
    }
    return render(request, "dashboard/rollouts/rollout.html", context, status=status)


def _now(rollout: Rollout, actor: Actor) -> dict[str, Any]:
    at = timezone.now()
    detail = rollout_detail(rollout, actor)
    return {"now": rollout_now(detail, now=at), "detail": detail, "observed_at": at}


def _still(rollout: Rollout, actor: Actor, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context that changes only with the rollout's state or step."""
    return {
        "deeds": deeds(now["detail"], total=len(now["detail"]["agents"])),
        "events": [(record, *event_words(record)) for record in map(record_view, rollout_records(actor, rollout))],
    }
