"""The policy editor at its three levels: the policy in force, a draft, its preview, and publishing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from django.db.models import Count, F, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from pydantic import ValidationError

from controlplane.dashboard.frame.pages import FORMS, page, part
from controlplane.dashboard.frame.requests import user_of
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.policies.at import At, at
from controlplane.dashboard.policies.authors import author_name, published_by, was_published
from controlplane.dashboard.policies.enforcement_words import fields_words, policy_words
from controlplane.dashboard.policies.fields import Typed, first
from controlplane.dashboard.policies.formats import formats
from controlplane.dashboard.policies.forms import (
    BUTTONS,
    MODELS,
    NOTE,
    ROLLOUT,
    Form,
    form_of,
    form_sent,
    pressed,
    rebased,
)
from controlplane.dashboard.policies.headlines import headline, models_words, own_words, standing
from controlplane.dashboard.policies.previews import (
    DiffLine,
    Previewed,
    blocked_words,
    draft_words,
    previewed,
    said_between,
)
from controlplane.dashboard.policies.progress import Progress, policy_progress, progress_words, so_far
from controlplane.dashboard.policies.published import after_publishing, not_served_words, published_of
from controlplane.dashboard.policies.rollout_forms import RolloutForm, button_words, rollout_form
from controlplane.dashboard.policies.rows import Ground, Row, model_fields, model_rows, rows
from controlplane.fleet.quality import newest_results, served_in
from controlplane.rollouts import services
from controlplane.rollouts.enforcement import enforcement_by_model
from controlplane.rollouts.selectors import agents_of, candidates_of, groups_below, pools_of
from tenants.errors import Conflict, InvalidFields, OutOfBounds, StaleRevision
from tenants.levels import FLEET, Place, levels_of
from tenants.models import PolicyLevel
from tenants.policy import Policy, Values, effective_values
from tenants.preview import AgentPool
from tenants.services.policies import revision_policy
from tenants.validation import field_problems

MOST_REVISION = 2**31 - 1
UNSAID = "Which revision this form was made for was not sent. Look through it and send it again."


@dataclass(frozen=True, slots=True)
class Stale:
    """Revisions published while the user edited; `since` is the revision their page showed."""

    since: int
    now: int
    diff: tuple[DiffLine, ...]
    words: str


@dataclass(frozen=True, slots=True)
class Draft:
    """The submitted form, applied to the level's current policy."""

    form: Form
    rollout: RolloutForm
    note: str
    stale: Stale | None


@page(methods=FORMS)
def policy(request: HttpRequest, org: str = "", ns: str = "") -> HttpResponse:
    """Show the policy, preview a draft (POST), or publish it (POST with `publish`)."""
    here = at(request, org, ns, writes="publish" in request.POST)
    levels = levels_of(here.place)
    if request.method != "POST":
        return _shown(request, here, levels, _untouched(levels, request.GET.get("ttl_seconds", "")))
    draft = _sent(here, levels, _typed(request))
    if "publish" in request.POST:
        outcome = _published(here, levels[-1], draft)
        if outcome is not None:
            return after_publishing(request, outcome, here.address("policy"), not_served_words(outcome, here.place))
        return _shown(request, here, levels_of(here.place), _renewed(here, draft, levels), status=422)
    return _shown(request, here, levels, draft)


@partial(part, methods=FORMS)
def policy_check(request: HttpRequest, org: str = "", ns: str = "") -> HttpResponse:
    """Render the draft's preview and problems, swapped in while the user types."""
    here = at(request, org, ns)
    levels = levels_of(here.place)
    typed = _unpressed(_typed(request))  # HTMX also sends the button pressed last
    draft = _sent(here, levels, typed) if request.method == "POST" else _untouched(levels)
    return render(request, "dashboard/policies/_check.html", _context(request, here, levels, draft, swapped=True))


# From the request to a draft


def _typed(request: HttpRequest) -> Typed:
    return cast(Typed, dict(request.POST.lists()))


def _unpressed(typed: Typed) -> Typed:
    """Drop the buttons: only the next press counts."""
    return {name: told for name, told in typed.items() if name not in BUTTONS}


def _untouched(levels: list[PolicyLevel], ttl: str = "") -> Draft:
    """Return the published policy as a draft, or with a TTL that another page proposed."""
    chain = [level.policy for level in levels]
    form = form_of(chain[-1], chain[:-1])
    if ttl.isdecimal() and len(ttl) <= 9:
        form = form_sent({**form.typed, "ttl_seconds": [ttl], "ttl_seconds-unit": ["s"]}, chain[-1])
    return Draft(form, rollout_form({}), "", None)


def _sent(here: At, levels: list[PolicyLevel], typed: Typed) -> Draft:
    """Return the submitted draft, based on the revision its page showed, rebased if that is outdated."""
    *above, level = levels
    chain = [one.policy for one in above]
    shown, typed = _revision(typed), pressed(typed, chain)
    stale = None
    if shown is None:
        form = form_sent(typed, level.policy)
        form.problems.setdefault("", []).append(UNSAID)
    elif shown == level.revision:
        form = form_sent(typed, level.policy)
    else:
        old = _said_by(here, shown, level)
        form = rebased(form_sent(typed, old), old, level.policy, chain)
        stale = _stale(here, shown, level, old)
    rollout = rollout_form(typed)
    errors = {ROLLOUT: rollout.non_field_errors(), **{one.html_name: one.errors for one in rollout.bounds}}
    form.problems.update({name: list(map(str, found)) for name, found in errors.items() if found})
    return Draft(form, rollout, first(typed, NOTE), stale)


def _revision(typed: Typed) -> int | None:
    told = first(typed, "revision")
    return int(told) if told.isdecimal() and len(told) <= 10 and int(told) <= MOST_REVISION else None


def _said_by(here: At, number: int, level: PolicyLevel) -> Values:
    """Return the policy that the page showed; for an unknown revision, the current one."""
    if number > level.revision:
        return cast(Values, level.policy)
    try:
        return revision_policy(here.place, number).said()
    except InvalidFields:
        return cast(Values, level.policy)


def _stale(here: At, since: int, level: PolicyLevel, old: Values) -> Stale:
    words = (
        f"{_meanwhile(here, since, level)}. What you typed is kept, what you left alone shows what is published now. "
        f"Look through it and send it again to publish it as revision {level.revision + 1}."
    )
    return Stale(since, level.revision, tuple(said_between(old, level.policy)), words)


def _meanwhile(here: At, since: int, level: PolicyLevel) -> str:
    count, last = level.revision - since, level.revision
    if count == 1:
        return was_published(level, last, here.actor)
    by = published_by(level, last, here.actor)
    return f"{count} revisions were published meanwhile. Revision {last} was published last {by}"


def _renewed(here: At, draft: Draft, levels: list[PolicyLevel]) -> Draft:
    """Rebase a refused draft if a newer revision was published in between."""
    if draft.stale is not None or STALE not in draft.form.problems:
        return draft
    *above, level = levels_of(here.place)
    old = levels[-1].policy
    form = rebased(draft.form, old, level.policy, [one.policy for one in above])
    return replace(draft, form=form, stale=_stale(here, levels[-1].revision, level, old))


STALE = "stale"  # a problem's key: the revision is outdated, the input is fine


# Publishing


def _published(here: At, level: PolicyLevel, draft: Draft) -> services.Outcome | None:
    """Publish the draft; or add the problem to its form and return None."""
    form, spec = draft.form, draft.rollout.spec
    if form.problems or draft.stale is not None or spec is None:
        return None
    if form.said == level.policy:
        form.problems.setdefault("", []).append(
            f"Nothing is changed: revision {level.revision} says all of it already."
        )
        return None
    drafted = _policy(form)
    if drafted is None:
        return None
    try:
        return services.policy_publish(
            actor=here.actor,
            place=here.place,
            policy=drafted,
            expected=frozenset({level.revision}),
            note=draft.note,
            rollout=spec,
        )
    except (OutOfBounds, InvalidFields, Conflict) as error:
        form.refuse(error.problems)
    except StaleRevision:
        form.problems[STALE] = []
    return None


def _policy(form: Form) -> Policy | None:
    try:
        return Policy.model_validate(form.said)
    except ValidationError as error:
        form.refuse(field_problems(error.errors(), root="policy"))
        return None


# Showing


def _shown(
    request: HttpRequest, here: At, levels: list[PolicyLevel], draft: Draft, *, status: int = 200
) -> HttpResponse:
    context = _context(request, here, levels, draft)
    context["published"] = published_of(user_of(request), request.GET.get("rollout", ""))
    return render(request, "dashboard/policies/editor.html", context, status=status)


def _context(
    request: HttpRequest, here: At, levels: list[PolicyLevel], draft: Draft, *, swapped: bool = False
) -> dict[str, Any]:
    chain, level, form = tuple(one.policy for one in levels), levels[-1], draft.form
    pools, candidates = pools_of(here.place), candidates_of(here.place)
    seen = _previewed(here, chain, draft, pools)
    enforcement = enforcement_by_model(here.place, chain)
    served = [one for group in served_in(groups_below(here.place)).values() for one in group]
    ground = Ground(
        chain,
        form,
        here.bounds,
        here.actor.is_operator,
        here.may_edit,
        pools,
        served,
        formats(pools, served, newest_results({one.model for one in served}), names_agents=here.actor.is_operator),
        seen.promised if seen else "",
        {model: fields_words(effective_values(chain, model), one, here.actor) for model, one in enforcement.items()},
    )
    shown, models = rows(ground), model_rows(ground)
    problems = [*form.problems.get("", []), *form.problems.get(ROLLOUT, [])]
    wrong = sum(len(told) for told in form.problems.values())
    progress = policy_progress(here.place, levels)
    last = None if swapped else level.revisions.filter(number=level.revision).first()
    return {
        **here.frame(request),
        "headline": headline(effective_values(chain), here.kind, here.place.name) + so_far(progress),
        "standing": standing(here.kind, level.revision),
        "last": last,
        "author": author_name(last, here.actor) if last else "",
        "synced": ""
        if swapped
        else "; ".join(filter(None, (_synced(here, progress), policy_words(enforcement.values(), here.actor)))),
        "panel_title": own_words(level.policy, here.kind),
        "inherits_from": _above(here, levels),
        "may_edit": here.may_edit,
        "readers": "operators" if here.kind == "fleet" else f"everybody of {here.place.name.partition('/')[0]}",
        "why_not": here.why_not,
        "revision": level.revision,
        "next_revision": level.revision + 1,
        "rows": shown,
        "models": models,
        "model_fields": model_fields(ground),
        "model_name": first(form.typed, "model-name"),
        "known_models": sorted({one.model for one in served}),
        "models_title": models_words(len(level.policy.get(MODELS, {}))),
        "seen": seen,
        "changes": draft_words(len(said_between(level.policy, form.said)), wrong),
        "may_publish": here.may_edit and form.said != level.policy and not wrong,
        "draft": draft,
        "problems": problems,
        "wrong": wrong,
        "wrong_words": _wrong_words(form, wrong),
        "blocked": blocked_words(wrong),
        "focus": _focus([*shown, *(row for model in models for row in model.rows)], draft.rollout),
        "note_problems": form.problems.get(NOTE, []),
        "button": button_words(level.revision + 1, draft.rollout.spec, candidates),
        "nobody": "" if candidates else "No agent serves this yet; an agent that joins gets it.",
        "swapped": swapped,
    }


def _wrong_words(form: Form, wrong: int) -> str:
    """Return the first problem, and how many more are beside their fields."""
    told = [one for found in form.problems.values() for one in found]
    if not told:
        return ""
    return told[0] if wrong == 1 else f"{told[0]} And {counted(wrong - 1, 'more thing')}, beside the fields."


def _focus(shown: Sequence[Row], rollout: RolloutForm) -> str:
    """Return the first field with a problem, as an id that can be focused."""
    for row in shown:
        if row.problems:
            return f"{row.key}-name" if row.options or row.is_locked else row.key
    return next((one.html_name for one in rollout.bounds if one.errors), "")


def _synced(here: At, progress: Sequence[Progress]) -> str:
    """Return how many agents are in sync. In a rollout, waiting agents are in sync with an older revision."""
    if progress:
        return progress_words(progress)
    is_synced = Q(applied_hash=F("desired_hash")) & ~Q(applied_hash="")
    counts = agents_of(groups_below(here.place)).aggregate(synced=Count("pk", filter=is_synced), all=Count("pk"))
    if not counts["all"]:
        return "no agent serves it yet"
    return f"{counts['synced']} of {counted(counts['all'], 'agent')} in sync"


def _above(here: At, levels: list[PolicyLevel]) -> list[tuple[str, int, str]]:
    """Return the levels it inherits from, nearest first: name, revision, and URL if the user may open it."""
    found = []
    if here.kind == "namespace":
        organisation = At(here.actor, Place(here.place.organisation))
        is_theirs = here.actor.namespace_ids is None
        found.append(("the organisation", levels[1].revision, organisation.address("policy") if is_theirs else ""))
    if here.kind != "fleet":
        fleet = At(here.actor, FLEET).address("policy") if here.actor.is_operator else ""
        found.append(("the fleet’s default", levels[0].revision, fleet))
    return found


def _previewed(here: At, chain: tuple[Values, ...], draft: Draft, pools: Sequence[AgentPool]) -> Previewed | None:
    """Preview the draft. Without changes, return None and read nothing."""
    form = draft.form
    if form.said == chain[-1] and not form.problems:
        return None
    drafted = _policy(form)
    if drafted is None:
        return None
    seen, problems = previewed(here, chain, drafted, pools, draft.rollout.spec)
    form.refuse(problems)
    return seen
