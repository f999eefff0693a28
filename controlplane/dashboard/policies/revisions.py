"""The revisions of a level, newest first, and rollback, which publishes a new revision."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.analytics.predicting import Effect, effects_of
from controlplane.dashboard.frame.pages import FORMS, page
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.at import At, at
from controlplane.dashboard.policies.authors import author_name, was_published
from controlplane.dashboard.policies.effect_words import error_words, measured_words, predicted_words
from controlplane.dashboard.policies.fields import problem_words
from controlplane.dashboard.policies.previews import diff_words, previewed, said_between
from controlplane.dashboard.policies.published import after_publishing
from controlplane.dashboard.policies.rollout_forms import button_words
from controlplane.rollouts import services
from controlplane.rollouts.selectors import candidates_of, pools_of
from controlplane.rollouts.spec import ALL_AT_ONCE
from tenants.actor import Actor
from tenants.errors import Conflict, FieldProblem, InvalidFields, OutOfBounds, StaleRevision
from tenants.levels import level_of, levels_of
from tenants.models import PolicyLevel, PolicyRevision
from tenants.policy import Values
from tenants.services.policies import revision_policy

PAGE = 20


@page(methods=FORMS)
def revisions(request: HttpRequest, org: str = "", ns: str = "") -> HttpResponse:
    """List revisions. `?to=` previews a rollback, and a POST publishes it."""
    scope = at(request, org, ns, writes=request.method == "POST")
    level = levels_of(scope.place)[-1]
    if request.method != "POST":
        return _shown(request, scope, _number(request.GET.get("to")))
    target_revision, expected = _number(request.POST.get("to")), _number(request.POST.get("revision"))
    if target_revision is None or expected is None:
        return _shown(
            request,
            scope,
            target_revision,
            told=["Which revision is meant was not sent: choose one below."],
            status=422,
        )
    if expected != level.revision:
        return _shown(request, scope, target_revision, told=[_stale(scope, level.revision)], status=422)
    if _says(scope, target_revision) == level.policy:
        return _shown(
            request,
            scope,
            target_revision,
            told=[f"Nothing is changed: revision {target_revision} says what is published."],
            status=422,
        )
    return _rolled_back(request, scope, target_revision, expected)


def _says(scope: At, number: int) -> Values | None:
    """Return the revision's values, or None if it does not exist; the rollback then reports that."""
    try:
        return revision_policy(scope.place, number).said()
    except InvalidFields:
        return None


def _rolled_back(request: HttpRequest, scope: At, target_revision: int, expected: int) -> HttpResponse:
    try:
        outcome = services.policy_rollback(
            actor=scope.actor,
            place=scope.place,
            to_revision=target_revision,
            expected=frozenset({expected}),
            note=request.POST.get("note", ""),
        )
    except (OutOfBounds, InvalidFields, Conflict) as error:
        return _shown(request, scope, target_revision, told=_told(error.problems), status=422)
    except StaleRevision as error:
        return _shown(request, scope, target_revision, told=[_stale(scope, error.actual)], status=422)
    number = outcome.published.level.revision
    words = f"{scope.whose}: revision {number} says what revision {target_revision} said. No agent serves it yet."
    return after_publishing(request, outcome, scope.address("policy"), words)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) <= 9 else None


def _stale(scope: At, actual: int) -> str:
    published_words = f"{was_published(level_of(scope.place), actual, scope.actor)}; this page shows it now."
    return f"{published_words} Look at what going back would change, then send it again."


def _told(problems: Sequence[FieldProblem]) -> list[str]:
    return [
        f"{problem.field.removeprefix('policy.')}: {problem_words(problem.field.rpartition('.')[2], problem.message)}"
        for problem in problems
    ]


def _shown(
    request: HttpRequest, scope: At, target_revision: int | None, *, told: Sequence[str] = (), status: int = 200
) -> HttpResponse:
    *above, level = levels_of(scope.place)
    before = _number(request.GET.get("before"))
    page_revisions = list(
        level.revisions.filter(number__lte=level.revision if before is None else before).order_by("-number")[: PAGE + 1]
    )
    context = {
        **scope.frame(request),
        "headline": _headline(scope, level.revision),
        "revision": level.revision,
        "policy": level.policy,
        "rows": revision_rows(page_revisions, scope.actor),
        "older": page_revisions[PAGE - 1].number - 1 if len(page_revisions) > PAGE else None,
        "is_newest": before is None,
        "may_edit": scope.may_edit,
        "why_not": scope.why_not,
        "back": None
        if target_revision is None or not scope.may_edit
        else _way_back(request, scope, [parent.policy for parent in above], level, target_revision),
        "told": told,
    }
    return render(request, "dashboard/policies/revisions.html", context, status=status)


def _headline(scope: At, revision: int) -> str:
    if not revision:
        return f"{scope.whose} has no revisions yet"
    return f"{scope.whose} has {counted(revision, 'revision')}"


def revision_rows(
    newest_revisions: Sequence[PolicyRevision], actor: Actor
) -> list[tuple[PolicyRevision, str, list[str], str, str]]:
    """Return each revision with author, changes, and forecast and measured hit rate.

    `newest_revisions`: newest first, with one more than is shown if there is one, to compare with.
    """
    shown_revisions = newest_revisions[:PAGE]
    effects = effects_of([revision.pk for revision in shown_revisions])
    older: list[Values] = [*(revision.policy for revision in newest_revisions[1:]), {}]
    rows = [
        (
            revision,
            author_name(revision, actor),
            diff_words(said_between(before, revision.policy)),
            *_effect_words(effects.get(revision.pk)),
        )
        for revision, before in zip(shown_revisions, older, strict=False)
    ]
    if shown_revisions and len(newest_revisions) <= PAGE and shown_revisions[-1].number == 1:
        beginning = PolicyRevision(number=0, policy={})
        rows.append((beginning, "", ["The beginning: everything was inherited."], "", ""))
    return rows


def _effect_words(effect: Effect | None) -> tuple[str, str]:
    if effect is None:
        return "", ""
    return f"{predicted_words(effect)} {error_words(effect)}".strip(), measured_words(effect)


def _way_back(
    request: HttpRequest, scope: At, above: list[Values], level: PolicyLevel, target_revision: int
) -> dict[str, Any] | None:
    """Return a rollback's preview, or None if there is no such revision."""
    try:
        policy = revision_policy(scope.place, target_revision)
    except InvalidFields:
        return None
    if policy.said() == level.policy:
        return {"title": f"Revision {target_revision} says what is published now: there is nothing to go back to"}
    preview, problems = previewed(scope, (*above, level.policy), policy, pools_of(scope.place))
    target_words = (
        "what was inherited before the first" if target_revision == 0 else f"what revision {target_revision} said"
    )
    return {
        "to": target_revision,
        "title": f"Going back publishes {target_words}, as revision {level.revision + 1}",
        "button": button_words(level.revision + 1, ALL_AT_ONCE, candidates_of(scope.place)),
        "seen": preview,
        "problems": _told(problems),
        "note": request.POST.get("note", ""),
    }
