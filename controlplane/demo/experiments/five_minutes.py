"""The page "Five minutes": buttons that start experiments on the live fleet, and the results of each."""

import time
from typing import Any, Final

import redis
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from controlplane.dashboard.frame.pages import FORMS, operator_of, page, part
from controlplane.demo.experiments.registry import EXPERIMENTS, OUTLIVING
from controlplane.demo.experiments.running import experiment_begin, experiment_told
from controlplane.demo.experiments.trials import Trial, headline, trial
from tenants.access import OPERATE, permit
from tenants.actor import Actor
from tenants.errors import NotFound

ADVICE: Final = "Each runs on this fleet as it is, shows what it measured and nothing else, and undoes itself."
NO_REDIS: Final = "Redis does not answer, and it keeps what experiments tell. Reload this page in a moment."


@page(methods=FORMS)
def five_minutes(request: HttpRequest) -> HttpResponse:
    actor = _operator(request)
    if request.method == "POST":
        return _begin(request, actor, request.POST.get("kind", ""))
    try:
        trials = [_trial(kind) for kind in EXPERIMENTS]
    except redis.RedisError:
        return render(request, "demo/five_minutes.html", _context([], problem=NO_REDIS), status=503)
    return render(request, "demo/five_minutes.html", _context(trials))


@part
def experiment_now(request: HttpRequest, kind: str) -> HttpResponse:
    """Return one experiment's panel, which HTMX polls while it runs, or 204 if the page already shows this state."""
    _operator(request)
    try:
        current_trial = _trial(kind)
    except redis.RedisError:
        return HttpResponse(status=503)
    if current_trial.is_running and request.GET.get("seen") == current_trial.seen:
        return HttpResponse(status=204)
    context = {"trial": current_trial, "swapped": True}
    if not current_trial.is_running:  # then the headline over all of them has changed, too
        context |= _context([_trial(experiment_kind) for experiment_kind in EXPERIMENTS])
    return render(request, "demo/_trial.html", context)


def _operator(request: HttpRequest) -> Actor:
    actor = operator_of(request)
    permit(actor, OPERATE)
    return actor


def _begin(request: HttpRequest, actor: Actor, kind: str) -> HttpResponse:
    if kind not in EXPERIMENTS:
        raise NotFound("experiment")
    try:
        is_begun = experiment_begin(kind, EXPERIMENTS[kind][1], actor, outlives=kind in OUTLIVING)
    except redis.RedisError:
        return render(request, "demo/five_minutes.html", _context([], problem=NO_REDIS), status=503)
    if not is_begun:
        messages.warning(request, f"“{EXPERIMENTS[kind][0].title}” is under way already; below is how far it is.")
    return redirect(f"{reverse('five-minutes')}#{kind}")


def _trial(kind: str) -> Trial:
    if kind not in EXPERIMENTS:
        raise NotFound("experiment")
    return trial(EXPERIMENTS[kind][0], experiment_told(kind), now=time.time())


def _context(trials: list[Trial], *, problem: str = "") -> dict[str, Any]:
    return {
        "headline": problem or headline(trials),
        "advice": "" if problem else ADVICE,
        "trials": trials,
    }
