"""The prompt linter: prompts are pasted, answered with where they differ, and forgotten."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.analytics.linting import MOST_PROMPTS, MOST_TOKENS, prompts_linted, prompts_typed
from controlplane.dashboard.frame.pages import FORMS, page
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.namespaces.forms import LintForm
from controlplane.dashboard.namespaces.frames import organisation_frame, within
from engine_agent.divergence.linting import Excerpt, Lint
from engine_agent.divergence.prompt_texts import NoPrompt
from tenants.access import STATS_READ


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands, and what."""

    where: str
    before: str
    text: str
    after: str


@dataclass(frozen=True, slots=True)
class Finding:
    words: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Linted:
    title: str
    basis: str
    findings: tuple[Finding, ...]
    suspects: tuple[Finding, ...]


@page(methods=FORMS)
def lint(request: HttpRequest, org: str) -> HttpResponse:
    found = within(request, org, STATS_READ)
    form = LintForm(request.POST) if request.method == "POST" else LintForm()
    answer = _linted(form) if form.is_bound and form.is_valid() else None
    context: dict[str, Any] = {
        **organisation_frame(request, found, path=reverse("misses", args=[org])),
        "form": form,
        "linted": answer,
        "headline": answer.title if answer else "Find what varies in your prompts",
    }
    is_refused = form.is_bound and answer is None
    return render(request, "dashboard/namespaces/lint.html", context, status=422 if is_refused else 200)


def _linted(form: LintForm) -> Linted | None:
    try:
        prompts = prompts_typed(form.cleaned_data["prompts"])
    except NoPrompt as problem:
        form.add_error("prompts", f"{str(problem)[:1].upper()}{str(problem)[1:]}.")
        return None
    if len(prompts) > MOST_PROMPTS:
        form.add_error("prompts", f"These are {len(prompts)} prompts, {MOST_PROMPTS} are the most.")
        return None
    return linted(prompts_linted(prompts))


def linted(found: Lint) -> Linted:
    many = counted(found.prompts, "prompt")
    return Linted(
        title=_title(found),
        basis=f"{many}, about {found.tokens:,} tokens; of each the first {MOST_TOKENS:,}. Tokens are counted by words.",
        findings=tuple(
            Finding(one.advice, tuple(place(excerpt) for excerpt in one.excerpts)) for one in found.findings
        ),
        suspects=tuple(
            Finding(f"Looks like {one.looks_like}, at about token {one.token:,}.", (place(one.excerpt),))
            for one in found.suspects
        ),
    )


def place(excerpt: Excerpt) -> Place:
    where = f"prompt {excerpt.prompt}, {excerpt.where}, line {excerpt.line}, column {excerpt.column}"
    return Place(_shown(where), *map(_shown, (excerpt.before, excerpt.text, excerpt.after)))


def _shown(text: str) -> str:
    """As far as it is text: half a character of JSON's has no bytes."""
    return text.encode("utf-8", "replace").decode()


def _title(found: Lint) -> str:
    if found.findings:
        now, then = (int(ratio * 100 + 1e-9) for ratio in (found.hit_ratio_now, found.hit_ratio_then))
        return f"Move what varies to the end: hit rate {now} % → {then} %"
    if found.suspects:
        look = "looks" if len(found.suspects) == 1 else "look"
        return f"{counted(len(found.suspects), 'place')} {look} different the next time, by the form of it"
    if found.prompts == 1:
        return "Nothing in this prompt looks as if it varied"
    return "Nothing varies in these prompts that would gain by moving"
