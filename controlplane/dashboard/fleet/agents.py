"""The page of one agent: its state, cache and enforcement, and the operators' actions."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from controlplane.analytics.agents import Hits, hits_of_agents, hits_over, pool_over, pools_held
from controlplane.dashboard.fleet.agent_charts import WINDOWS, charts, window_asked
from controlplane.dashboard.fleet.agent_facts import (
    CANARY,
    OUTCOMES,
    advice,
    clock_words,
    deeds,
    headline,
    receipt_words,
    seen_as,
    step_words,
    sync,
    sync_title,
    timing_words,
)
from controlplane.dashboard.fleet.pools import NOTHING, held_rows, pool_bar
from controlplane.dashboard.fleet.rows import percent_used
from controlplane.dashboard.frame.deeds import not_confirmed, problems_words
from controlplane.dashboard.frame.pages import FORMS, operator_of, page, part
from controlplane.dashboard.policies.enforcement_words import enforcement_facts
from controlplane.fleet import agents, selectors
from controlplane.fleet.canaries import NEVER, Isolation, isolations_read
from controlplane.fleet.enforcement import enforcement_view
from controlplane.fleet.in_force import fields_in_force
from controlplane.fleet.models import Agent, OperationStep
from controlplane.fleet.views import agent_view
from controlplane.live.selectors import pulse_latest
from tenants.errors import Conflict, InvalidFields, NotFound

DEEDS: Final[Mapping[str, Callable[..., Any]]] = {
    "drain": agents.agent_drain,
    "resume": agents.agent_resume,
    "integrity": agents.agent_check_integrity,
    "rotate-token": agents.agent_rotate_token,
    "revoke": agents.agent_revoke,
}
MOST_NAMESPACES: Final = 50
MOST_STEPS: Final = 20


@page()
def agent(request: HttpRequest, agent_id: str) -> HttpResponse:
    operator_of(request)
    return _shown(request, selectors.agent_for(agent_id))


@part
def agent_part(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Render what changes, for HTMX."""
    operator_of(request)
    context = {**_now(selectors.agent_for(agent_id)), "swapped": True}
    return render(request, "dashboard/fleet/_agent.html", context)


@page(methods=FORMS)  # a refused action stays at this address; reloading it shows the agent
def agent_deed(request: HttpRequest, agent_id: str, deed: str) -> HttpResponse:
    """Perform one of DEEDS. Refuse it if the page is outdated, or the name is not typed."""
    actor, agent = operator_of(request), selectors.agent_for(agent_id)
    if deed not in DEEDS:
        raise NotFound("page")
    if request.method != "POST":
        return redirect("agent", agent_id)
    typed = request.POST.get("confirm", "").strip()
    refused = _refused(agent, deed, request.POST.get("seen", ""), typed)
    if not refused:
        try:
            operation = DEEDS[deed](actor=actor, agent=agent)
        except (Conflict, InvalidFields) as error:
            refused = problems_words(error.problems)
        else:
            if operation is not None:
                return redirect("operation", operation.pk)
            messages.success(request, f"{agent_id} is out of the fleet: its token and its login have ended.")
            return redirect("agent", agent_id)
    tried = {"deed": deed, "typed": typed[:200], "refused": refused}
    return _shown(request, selectors.agent_for(agent_id), status=422, tried=tried)


def _refused(agent: Agent, action: str, shown_state: str, typed: str) -> str:
    if shown_state != _seen(agent):
        return "The agent is not as this page showed it any more. Look how it is now; nothing was done."
    return not_confirmed(typed, agent.pk) if action == "revoke" else ""


def _seen(agent: Agent) -> str:
    return seen_as(is_draining=agent.is_draining, is_revoked=agent.revoked_at is not None)


def _shown(request: HttpRequest, agent: Agent, *, status: int = 200, **tried: Any) -> HttpResponse:
    now, window = timezone.now(), window_asked(request.GET.get("window", ""))
    pulse, current = pulse_latest(), _now(agent)
    steps = hits_over(agent.pk, now=now, within=window.lasts, step=window.step)
    context = {
        **current,
        **tried,
        "clock": clock_words(current["view"]["clock_skew_seconds"]),
        "enforcement": enforcement_facts(current["view"]["enforcement"]),
        "charts": charts(steps, pool_over(agent.pk, now=now, within=window.lasts), window, now=now),
        "window": window,
        "windows": WINDOWS.values(),
        "deeds": deeds(current["view"], others=_others(agent)),
        "seen": _seen(agent),
        "seq": pulse.seq if pulse else 0,
    }
    return render(request, "dashboard/fleet/agent.html", context, status=status)


def _others(agent: Agent) -> int:
    """Count the other engines of its group that take requests, as far as known."""
    now, cadence = timezone.now(), selectors.fleet_cadence_seconds()
    ready = selectors.agents_in_state("ready", now=now, cadence=cadence).filter(kind="engine", group=agent.group_id)
    return ready.exclude(pk=agent.pk).count()


def _now(agent: Agent) -> dict[str, Any]:
    now = timezone.now()
    cadence, in_force = selectors.fleet_cadence_seconds(), fields_in_force()
    view = agent_view(agent, now=now, cadence=cadence, in_force=in_force)
    view["enforcement"] = enforcement_view(agent.about)
    pool_contents = pools_held([agent.pk], top=MOST_NAMESPACES).get(agent.pk, NOTHING)
    steps = OperationStep.objects.filter(agent=agent).select_related("operation").order_by("-pk")[:MOST_STEPS]
    is_engine = agent.kind == "engine"
    return {
        "agent": agent,
        "view": view,
        "headline": headline(view),
        "advice": advice(view),
        "sync": sync(view),
        "sync_title": sync_title(view),
        "is_engine": is_engine,
        "engine_hash": agent.heartbeat.get("engine", {}).get("hash"),
        "hits": hits_of_agents([agent.pk], now=now).get(agent.pk, Hits()),
        "pool_percent": percent_used(view["pool"]),
        "bar": pool_bar(view["pool"], pool_contents, view["computed_as"]),
        "held": held_rows(pool_contents),
        "contents": pool_contents,
        "told_at": max((part.at for part in pool_contents.top), default=None),
        **(_canary(isolations_read([agent.pk], now=now).get(agent.pk, NEVER)) if is_engine else {}),
        "steps": [(step, step_words(step), receipt_words(step.receipt, step.attempts)) for step in steps],
        "observed_at": now,
    }


def _canary(isolation: Isolation) -> dict[str, Any]:
    return {
        "canary": isolation,
        "canary_title": CANARY[isolation.state],
        "rounds": [(name, isolation.rounds[name], meaning) for name, meaning in OUTCOMES.items()],
        "timing": timing_words(isolation.timing),
    }
