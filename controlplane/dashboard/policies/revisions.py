"""The revisions of a level, newest first, and the way back to an earlier one: which is a new revision, too."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from controlplane.analytics.predicting import Effect, effects_of
from controlplane.dashboard.frame.pages import FORMS, page
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.at import At, at
from controlplane.dashboard.policies.authors import author_name, was_published
from controlplane.dashboard.policies.effect_words import error_words, measured_words, predicted_words
from controlplane.dashboard.policies.fields import problem_words
from controlplane.dashboard.policies.previews import Previewed, diff_words, previewed, said_between
from controlplane.dashboard.policies.rollout_forms import button_words
from controlplane.rollouts import services
from controlplane.rollouts.enforcement import agents_preview
from controlplane.rollouts.selectors import candidates_of, pools_of
from controlplane.rollouts.spec import ALL_AT_ONCE
from tenants.actor import Actor
from tenants.errors import Conflict, FieldProblem, InvalidFields, OutOfBounds, StaleRevision
from tenants.levels import level_of, levels_of
from tenants.models import PolicyLevel, PolicyRevision
from tenants.policy import Values, effective_values
from tenants.selectors import policy_preview
from tenants.services.policies import revision_policy

PAGE = 20


@dataclass(frozen=True, slots=True)
class RevisionRow:
    number: int
    author: str
    at: datetime | None  # None: the beginning
    note: str
    changes: tuple[str, ...]
    is_current: bool
    predicted: str  # hit rate before and after, with its error; empty: nothing was foretold
    measured: str
    is_same: bool  # as what is published now: there is nothing to go back to


@dataclass(frozen=True, slots=True)
class WayBack:
    """What a rollback would publish."""

    to: int
    title: str
    button: str
    seen: Previewed | None
    problems: tuple[str, ...]
    note: str


@page(methods=FORMS)
def revisions(request: HttpRequest, org: str = "", ns: str = "") -> HttpResponse:
    """The list; `?to=` shows what going back there would publish, and a POST does it."""
    here = at(request, org, ns, writes=request.method == "POST")
    level = levels_of(here.place)[-1]
    if request.method != "POST":
        return _shown(request, here, _number(request.GET.get("to")))
    to, expected = _number(request.POST.get("to")), _number(request.POST.get("revision"))
    if to is None or expected is None:
        return _shown(request, here, to, told=["Which revision is meant was not sent: choose one below."], status=422)
    if expected != level.revision:
        return _shown(request, here, to, told=[_stale(here, level.revision)], status=422)
    if _says(here, to) == level.policy:
        return _shown(
            request, here, to, told=[f"Nothing is changed: revision {to} says what is published."], status=422
        )
    return _rolled_back(request, here, to, expected)


def _says(here: At, number: int) -> Values | None:
    """None: there is no such revision, which going back says in its own words."""
    try:
        return revision_policy(here.place, number).said()
    except InvalidFields:
        return None


def _rolled_back(request: HttpRequest, here: At, to: int, expected: int) -> HttpResponse:
    try:
        outcome = services.policy_rollback(
            actor=here.actor,
            place=here.place,
            to_revision=to,
            expected=frozenset({expected}),
            note=request.POST.get("note", ""),
        )
    except (OutOfBounds, InvalidFields, Conflict) as error:
        return _shown(request, here, to, told=_told(error.problems), status=422)
    except StaleRevision as error:
        return _shown(request, here, to, told=[_stale(here, error.actual)], status=422)
    if outcome.rollout is not None:
        return redirect(f"{here.address('policy')}?{urlencode({'rollout': outcome.rollout.pk})}")
    number = outcome.published.level.revision
    messages.success(request, f"{here.whose}: revision {number} says what revision {to} said. No agent serves it yet.")
    return redirect(here.address("policy"))


def _number(told: str | None) -> int | None:
    return int(told) if told and told.isdecimal() and len(told) <= 9 else None


def _stale(here: At, actual: int) -> str:
    told = f"{was_published(level_of(here.place), actual, here.actor)}; this page shows it now."
    return f"{told} Look at what going back would change, then send it again."


def _told(problems: Sequence[FieldProblem]) -> list[str]:
    return [
        f"{one.field.removeprefix('policy.')}: {problem_words(one.field.rpartition('.')[2], one.message)}"
        for one in problems
    ]


def _shown(
    request: HttpRequest, here: At, to: int | None, *, told: Sequence[str] = (), status: int = 200
) -> HttpResponse:
    *above, level = levels_of(here.place)
    before = _number(request.GET.get("before"))
    found = list(
        level.revisions.filter(number__lte=level.revision if before is None else before).order_by("-number")[: PAGE + 1]
    )
    shown = revision_rows(found, level.policy, level.revision, here.actor)
    back = (
        None if to is None or not here.may_edit else _way_back(request, here, [one.policy for one in above], level, to)
    )
    context = {
        **here.frame(request),
        "headline": _headline(here, level.revision),
        "revision": level.revision,
        "rows": shown,
        "older": shown[-1].number - 1 if len(found) > PAGE else None,
        "is_newest": before is None,
        "may_edit": here.may_edit,
        "why_not": here.why_not,
        "back": back,
        "told": told,
    }
    return render(request, "dashboard/policies/revisions.html", context, status=status)


def _headline(here: At, revision: int) -> str:
    if not revision:
        return f"{here.whose} has no revisions yet"
    return f"{here.whose} has {counted(revision, 'revision')}"


def revision_rows(found: Sequence[PolicyRevision], now: Values, current: int, actor: Actor) -> list[RevisionRow]:
    """`found`: newest first, with one more than is shown, where there is one."""
    effects = effects_of([one.pk for one in found[:PAGE]])
    rows = []
    for place, one in enumerate(found[:PAGE]):
        older: Values | None = found[place + 1].policy if place + 1 < len(found) else {}
        lines = said_between(older or {}, one.policy)
        rows.append(
            RevisionRow(
                one.number,
                author_name(one, actor),
                one.at,
                one.note,
                tuple(diff_words(lines)),
                one.number == current,
                *_effect_words(effects.get(one.pk)),
                one.policy == now,
            )
        )
    if rows and len(found) <= PAGE and rows[-1].number == 1:
        rows.append(
            RevisionRow(0, "", None, "", ("The beginning: everything was inherited.",), current == 0, "", "", now == {})
        )
    return rows


def _effect_words(effect: Effect | None) -> tuple[str, str]:
    if effect is None:
        return "", ""
    return f"{predicted_words(effect)} {error_words(effect)}".strip(), measured_words(effect)


def _way_back(request: HttpRequest, here: At, above: list[Values], level: PolicyLevel, to: int) -> WayBack | None:
    """As the REST API would preview the same policy. None where there is no such revision."""
    try:
        policy = revision_policy(here.place, to)
    except InvalidFields:
        return None
    said, pools = policy.said(), pools_of(here.place)
    if said == level.policy:
        return WayBack(
            to, f"Revision {to} says what is published now: there is nothing to go back to", "", None, (), ""
        )
    found = policy_preview(actor=here.actor, place=here.place, policy=policy, pools=pools)
    formats = agents_preview(actor=here.actor, place=here.place, policy=policy)
    seen = previewed(
        found,
        [*found.warnings, *formats.warnings],
        kind=here.kind,
        before=level.policy,
        after=said,
        pools=pools,
        kv_dtype=effective_values((*above, said))["kv_dtype"],
    )
    what = "what was inherited before the first" if to == 0 else f"what revision {to} said"
    return WayBack(
        to,
        f"Going back publishes {what}, as revision {level.revision + 1}",
        button_words(level.revision + 1, ALL_AT_ONCE, candidates_of(here.place)),
        seen,
        tuple(_told([*found.problems, *formats.problems])),
        request.POST.get("note", ""),
    )
