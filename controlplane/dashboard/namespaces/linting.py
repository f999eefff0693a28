"""The prompt linter: it shows where pasted prompts differ, and stores none of them."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.analytics.linting import MOST_PROMPTS, MOST_TOKENS, prompts_linted, prompts_typed
from controlplane.dashboard.frame.pages import FORMS, page
from controlplane.dashboard.frame.words import counted, sentence
from controlplane.dashboard.namespaces.forms import LintForm
from controlplane.dashboard.namespaces.frames import organisation_frame, within
from engine_agent.divergence.linting import Lint
from engine_agent.divergence.prompt_texts import NoPrompt
from tenants.access import STATS_READ


@page(methods=FORMS)
def lint(request: HttpRequest, org: str) -> HttpResponse:
    actor, organisation = within(request, org, STATS_READ)
    form = LintForm(request.POST) if request.method == "POST" else LintForm()
    lint_report = _linted(form) if form.is_bound and form.is_valid() else None
    context: dict[str, Any] = {
        **organisation_frame(request, actor, organisation, path=reverse("misses", args=[org])),
        "form": form,
        "linted": lint_report,
        "most_tokens": MOST_TOKENS,
        "headline": title(lint_report) if lint_report else "Find what varies in your prompts",
    }
    is_refused = form.is_bound and lint_report is None
    return render(request, "dashboard/namespaces/lint.html", context, status=422 if is_refused else 200)


def _linted(form: LintForm) -> Lint | None:
    try:
        prompts = prompts_typed(form.cleaned_data["prompts"])
    except NoPrompt as problem:
        form.add_error("prompts", sentence(str(problem)))
        return None
    if len(prompts) > MOST_PROMPTS:
        form.add_error("prompts", f"These are {len(prompts)} prompts, {MOST_PROMPTS} are the most.")
        return None
    return prompts_linted(prompts)


def title(lint: Lint) -> str:
    if lint.findings:
        now, then = (int(ratio * 100 + 1e-9) for ratio in (lint.hit_ratio_now, lint.hit_ratio_then))
        return f"Move what varies to the end: hit rate {now} % → {then} %"
    if lint.suspects:
        look = "looks" if len(lint.suspects) == 1 else "look"
        return f"{counted(len(lint.suspects), 'place')} {look} different the next time, by the form of it"
    if lint.prompts == 1:
        return "Nothing in this prompt looks as if it varied"
    return "Nothing varies in these prompts that would gain by moving"
