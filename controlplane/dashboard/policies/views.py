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
    scope = at(request, org, ns, writes="publish" in request.POST)
    levels = levels_of(scope.place)
    if request.method != "POST":
        return _shown(request, scope, levels, _untouched(levels, request.GET.get("ttl_seconds", "")))
    draft = _sent(scope, levels, _typed(request))
    if "publish" in request.POST:
        outcome = _published(scope, levels[-1], draft)
        if outcome is not None:
            return after_publishing(request, outcome, scope.address("policy"), not_served_words(outcome, scope.place))
        return _shown(request, scope, levels_of(scope.place), _renewed(scope, draft, levels), status=422)
    return _shown(request, scope, levels, draft)


@partial(part, methods=FORMS)
def policy_check(request: HttpRequest, org: str = "", ns: str = "") -> HttpResponse:
    """Render the draft's preview and problems, swapped in while the user types."""
    scope = at(request, org, ns)
    levels = levels_of(scope.place)
    typed = _unpressed(_typed(request))  # HTMX also sends the button pressed last
    draft = _sent(scope, levels, typed) if request.method == "POST" else _untouched(levels)
    return render(request, "dashboard/policies/_check.html", _context(request, scope, levels, draft, swapped=True))


# From the request to a draft


def _typed(request: HttpRequest) -> Typed:
    return cast(Typed, dict(request.POST.lists()))


def _unpressed(typed: Typed) -> Typed:
    """Drop the buttons: only the next press counts."""
    return {name: entries for name, entries in typed.items() if name not in BUTTONS}


def _untouched(levels: list[PolicyLevel], ttl: str = "") -> Draft:
    """Return the published policy as a draft, or with a TTL that another page proposed."""
    chain = [level.policy for level in levels]
    form = form_of(chain[-1], chain[:-1])
    if ttl.isdecimal() and len(ttl) <= 9:
        form = form_sent({**form.typed, "ttl_seconds": [ttl], "ttl_seconds-unit": ["s"]}, chain[-1])
    return Draft(form, rollout_form({}), "", None)


def _sent(scope: At, levels: list[PolicyLevel], typed: Typed) -> Draft:
    """Return the submitted draft, based on the revision its page showed, rebased if that is outdated."""
    *above, level = levels
    chain = [parent.policy for parent in above]
    shown_revision, typed = _revision(typed), pressed(typed, chain)
    stale = None
    if shown_revision is None:
        form = form_sent(typed, level.policy)
        form.problems.setdefault("", []).append(UNSAID)
    elif shown_revision == level.revision:
        form = form_sent(typed, level.policy)
    else:
        old = _said_by(scope, shown_revision, level)
        form = rebased(form_sent(typed, old), old, level.policy, chain)
        stale = _stale(scope, shown_revision, level, old)
    rollout = rollout_form(typed)
    errors = {
        ROLLOUT: rollout.non_field_errors(),
        **{bound_field.html_name: bound_field.errors for bound_field in rollout.bounds},
    }
    form.problems.update({name: list(map(str, messages)) for name, messages in errors.items() if messages})
    return Draft(form, rollout, first(typed, NOTE), stale)


def _revision(typed: Typed) -> int | None:
    text = first(typed, "revision")
    return int(text) if text.isdecimal() and len(text) <= 10 and int(text) <= MOST_REVISION else None


def _said_by(scope: At, number: int, level: PolicyLevel) -> Values:
    """Return the policy that the page showed; for an unknown revision, the current one."""
    if number > level.revision:
        return cast(Values, level.policy)
    try:
        return revision_policy(scope.place, number).said()
    except InvalidFields:
        return cast(Values, level.policy)


def _stale(scope: At, since: int, level: PolicyLevel, old: Values) -> Stale:
    words = (
        f"{_meanwhile(scope, since, level)}. What you typed is kept, what you left alone shows what is published now. "
        f"Look through it and send it again to publish it as revision {level.revision + 1}."
    )
    return Stale(since, level.revision, tuple(said_between(old, level.policy)), words)


def _meanwhile(scope: At, since: int, level: PolicyLevel) -> str:
    count, last = level.revision - since, level.revision
    if count == 1:
        return was_published(level, last, scope.actor)
    author_text = published_by(level, last, scope.actor)
    return f"{count} revisions were published meanwhile. Revision {last} was published last {author_text}"


def _renewed(scope: At, draft: Draft, levels: list[PolicyLevel]) -> Draft:
    """Rebase a refused draft if a newer revision was published in between."""
    if draft.stale is not None or STALE not in draft.form.problems:
        return draft
    *above, level = levels_of(scope.place)
    old = levels[-1].policy
    form = rebased(draft.form, old, level.policy, [parent.policy for parent in above])
    return replace(draft, form=form, stale=_stale(scope, levels[-1].revision, level, old))


STALE = "stale"  # a problem's key: the revision is outdated, the input is fine


# Publishing


def _published(scope: At, level: PolicyLevel, draft: Draft) -> services.Outcome | None:
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
            actor=scope.actor,
            place=scope.place,
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
    request: HttpRequest, scope: At, levels: list[PolicyLevel], draft: Draft, *, status: int = 200
) -> HttpResponse:
    context = _context(request, scope, levels, draft)
    context["published"] = published_of(user_of(request), request.GET.get("rollout", ""))
    return render(request, "dashboard/policies/editor.html", context, status=status)


def _context(
    request: HttpRequest, scope: At, levels: list[PolicyLevel], draft: Draft, *, swapped: bool = False
) -> dict[str, Any]:
    chain, level, form = tuple(policy_level.policy for policy_level in levels), levels[-1], draft.form
    pools, candidates = pools_of(scope.place), candidates_of(scope.place)
    preview = _previewed(scope, chain, draft, pools)
    enforcement = enforcement_by_model(scope.place, chain)
    served = [served_model for group in served_in(groups_below(scope.place)).values() for served_model in group]
    row_context = Ground(
        chain,
        form,
        scope.bounds,
        scope.actor.is_operator,
        scope.may_edit,
        pools,
        served,
        formats(
            pools,
            served,
            newest_results({served_model.model for served_model in served}),
            names_agents=scope.actor.is_operator,
        ),
        preview.promised if preview else "",
        {
            model: fields_words(effective_values(chain, model), enforced_fields, scope.actor)
            for model, enforced_fields in enforcement.items()
        },
    )
    policy_rows, models = rows(row_context), model_rows(row_context)
    problems = [*form.problems.get("", []), *form.problems.get(ROLLOUT, [])]
    wrong = sum(len(messages) for messages in form.problems.values())
    progress = policy_progress(scope.place, levels)
    last = None if swapped else level.revisions.filter(number=level.revision).first()
    return {
        **scope.frame(request),
        "headline": headline(effective_values(chain), scope.kind, scope.place.name) + so_far(progress),
        "standing": standing(scope.kind, level.revision),
        "last": last,
        "author": author_name(last, scope.actor) if last else "",
        "synced": ""
        if swapped
        else "; ".join(filter(None, (_synced(scope, progress), policy_words(enforcement.values(), scope.actor)))),
        "panel_title": own_words(level.policy, scope.kind),
        "inherits_from": _above(scope, levels),
        "may_edit": scope.may_edit,
        "readers": "operators" if scope.kind == "fleet" else f"everybody of {scope.place.name.partition('/')[0]}",
        "why_not": scope.why_not,
        "revision": level.revision,
        "next_revision": level.revision + 1,
        "rows": policy_rows,
        "models": models,
        "model_fields": model_fields(row_context),
        "model_name": first(form.typed, "model-name"),
        "known_models": sorted({served_model.model for served_model in served}),
        "models_title": models_words(len(level.policy.get(MODELS, {}))),
        "seen": preview,
        "changes": draft_words(len(said_between(level.policy, form.said)), wrong),
        "may_publish": scope.may_edit and form.said != level.policy and not wrong,
        "draft": draft,
        "problems": problems,
        "wrong": wrong,
        "wrong_words": _wrong_words(form, wrong),
        "blocked": blocked_words(wrong),
        "focus": _focus([*policy_rows, *(row for model in models for row in model.rows)], draft.rollout),
        "note_problems": form.problems.get(NOTE, []),
        "button": button_words(level.revision + 1, draft.rollout.spec, candidates),
        "nobody": "" if candidates else "No agent serves this yet; an agent that joins gets it.",
        "swapped": swapped,
    }


def _wrong_words(form: Form, wrong: int) -> str:
    """Return the first problem, and how many more are beside their fields."""
    all_messages = [message for messages in form.problems.values() for message in messages]
    if not all_messages:
        return ""
    return (
        all_messages[0]
        if wrong == 1
        else f"{all_messages[0]} And {counted(wrong - 1, 'more thing')}, beside the fields."
    )


def _focus(policy_rows: Sequence[Row], rollout: RolloutForm) -> str:
    """Return the first field with a problem, as an id that can be focused."""
    for row in policy_rows:
        if row.problems:
            return f"{row.key}-name" if row.options or row.is_locked else row.key
    return next((bound_field.html_name for bound_field in rollout.bounds if bound_field.errors), "")


def _synced(scope: At, progress: Sequence[Progress]) -> str:
    """Return how many agents are in sync. In a rollout, waiting agents are in sync with an older revision."""
    if progress:
        return progress_words(progress)
    is_synced = Q(applied_hash=F("desired_hash")) & ~Q(applied_hash="")
    counts = agents_of(groups_below(scope.place)).aggregate(synced=Count("pk", filter=is_synced), all=Count("pk"))
    if not counts["all"]:
        return "no agent serves it yet"
    return f"{counts['synced']} of {counted(counts['all'], 'agent')} in sync"


def _above(scope: At, levels: list[PolicyLevel]) -> list[tuple[str, int, str]]:
    """Return the levels it inherits from, nearest first: name, revision, and URL if the user may open it."""
    parents = []
    if scope.kind == "namespace":
        organisation = At(scope.actor, Place(scope.place.organisation))
        is_theirs = scope.actor.namespace_ids is None
        parents.append(("the organisation", levels[1].revision, organisation.address("policy") if is_theirs else ""))
    if scope.kind != "fleet":
        fleet = At(scope.actor, FLEET).address("policy") if scope.actor.is_operator else ""
        parents.append(("the fleet’s default", levels[0].revision, fleet))
    return parents


def _previewed(scope: At, chain: tuple[Values, ...], draft: Draft, pools: Sequence[AgentPool]) -> Previewed | None:
    """Preview the draft. Without changes, return None and read nothing."""
    form = draft.form
    if form.said == chain[-1] and not form.problems:
        return None
    drafted = _policy(form)
    if drafted is None:
        return None
    preview, problems = previewed(scope, chain, drafted, pools, draft.rollout.spec)
    form.refuse(problems)
    return preview
