"""Alert rules: list, create, change and delete them. A webhook's secret is shown once."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache

from controlplane.alerts import selectors, services
from controlplane.alerts.models import AlertRule
from controlplane.alerts.views import rule_view
from controlplane.dashboard.alerts.forms import RuleForm, ending_form, rule_initial, rule_mark
from controlplane.dashboard.alerts.rows import metrics_known, rules_headline
from controlplane.dashboard.frame.forms import ConfirmForm
from controlplane.dashboard.frame.pages import FORMS, actors_of, page
from controlplane.dashboard.frame.paging import page_asked, pager
from controlplane.dashboard.frame.requests import user_of
from tenants.access import (
    MANAGE,
    READ,
    group_for,
    namespace_for,
    organisation_for,
    organisations_visible,
    permit,
    permit_anywhere,
)
from tenants.actor import Actor
from tenants.errors import Conflict, FieldProblem, InvalidFields, NotFound, NotPermitted, OrganisationSuspended
from tenants.levels import FLEET, Place
from tenants.models import AgentGroup

REFUSED = 422
GROUP, WHOLE = "group:", "fleet"


@dataclass(frozen=True, slots=True)
class Shown:
    """A new webhook secret, shown only now."""

    name: str
    secret: str


@never_cache
@page(methods=FORMS)
def alert_rules(request: HttpRequest) -> HttpResponse:
    actors = actors_of(request)
    if request.method != "POST":
        return _list(request, actors)
    form = RuleForm(request.POST, is_operator=user_of(request).is_operator)
    if form.is_valid():
        try:
            created = _created(actors, form)
        except (InvalidFields, Conflict) as error:
            form.refuse(error.problems)
        else:
            if created.secret:
                return _list(request, actors, shown=Shown(created.rule.name, created.secret), status=201)
            messages.success(request, f"The rule “{created.rule.name}” holds from the next round on.")
            return redirect("alert-rules")
    return _list(request, actors, form=form, status=REFUSED)


@never_cache
@page(methods=FORMS)
def alert_rule(request: HttpRequest, rule: UUID) -> HttpResponse:
    actor, stored_rule = _found(actors_of(request), rule)
    permit_anywhere(actor, MANAGE)
    if request.method != "POST":
        return _rule(request, actor, stored_rule)
    return (
        _delete(request, actor, stored_rule)
        if request.POST.get("do") == "delete"
        else _update(request, actor, stored_rule)
    )


def _update(request: HttpRequest, actor: Actor, rule: AlertRule) -> HttpResponse:
    view = rule_view(rule)
    form = RuleForm(request.POST, is_operator=actor.is_operator, fixed=view)
    if form.is_valid() and form.cleaned_data["seen"] != rule_mark(view):
        explanation = (
            "Somebody changed this rule meanwhile, and this page shows it as it is now. What you typed is kept"
        )
        form.add_error(None, f"{explanation}: send it again to set it nevertheless.")
    if form.is_valid():
        rotates = bool(form.cleaned_data["new_secret"])
        try:
            updated = services.rule_update(actor=actor, rule=rule, changes=form.values(), rotates_secret=rotates)
        except (InvalidFields, Conflict) as error:
            form.refuse(error.problems)
        else:
            if updated.secret:
                return _rule(request, actor, updated.rule, shown=Shown(updated.rule.name, updated.secret))
            messages.success(request, f"The rule “{updated.rule.name}” is changed: it holds from the next round on.")
            return redirect("alert-rules")
    return _rule(request, actor, rule, form=form, status=REFUSED)


def _delete(request: HttpRequest, actor: Actor, rule: AlertRule) -> HttpResponse:
    form = ending_form(rule.name, request.POST)
    if form.is_valid():
        try:
            services.rule_delete(actor=actor, rule=rule)
        except Conflict as error:
            form.add_error(None, " ".join(f"{problem.field}: {problem.message}." for problem in error.problems))
        else:
            messages.success(request, f"The rule “{rule.name}” is deleted. What it found stays in the history.")
            return redirect("alert-rules")
    return _rule(request, actor, rule, ending=form, status=REFUSED)


def _list(
    request: HttpRequest,
    actors: list[Actor],
    *,
    form: RuleForm | None = None,
    shown: Shown | None = None,
    status: int = 200,
) -> HttpResponse:
    rows = _visible(actors).order_by("number")
    is_operator, pages = user_of(request).is_operator, pager(page_asked(request.GET), rows)
    views = [rule_view(rule) for rule in pages]
    context: dict[str, Any] = {
        "headline": rules_headline(views, pages.total),
        "rows": views,
        "pager": pages,
        "metrics": metrics_known(is_operator=is_operator),
        "form": form or RuleForm(is_operator=is_operator),
        "shown": shown,
        "why_not": _why_not(actors),
        "is_operator": is_operator,
    }
    return render(request, "dashboard/alerts/alert_rules.html", context, status=status)


def _rule(
    request: HttpRequest,
    actor: Actor,
    rule: AlertRule,
    *,
    form: RuleForm | None = None,
    ending: ConfirmForm | None = None,
    shown: Shown | None = None,
    status: int = 200,
) -> HttpResponse:
    view = rule_view(rule)
    firing = rule.alerts.filter(state="firing").count()
    context = {
        "rule": view,
        "firing": firing,
        "form": form or RuleForm(initial=rule_initial(view), is_operator=actor.is_operator, fixed=view),
        "seen": rule_mark(view),
        "ending": ending or ending_form(rule.name),
        "shown": shown,
        "is_operator": actor.is_operator,
    }
    return render(request, "dashboard/alerts/alert_rule.html", context, status=status)


def _created(actors: list[Actor], form: RuleForm) -> services.Made:
    cleaned = form.cleaned_data
    actor, scope, group = _whose(actors, cleaned["place"])
    draft = services.Draft(metric=cleaned["metric"], comparison=cleaned["comparison"], **form.values())
    return services.rule_create(actor=actor, draft=draft, place=scope, group=group)


def _whose(actors: list[Actor], typed: str) -> tuple[Actor, Place, AgentGroup | None]:
    """Return actor, level and group for the typed place. A place the user may not manage counts as missing."""
    operator = next((actor for actor in actors if actor.is_operator), None)
    if operator is not None:
        permit(operator, MANAGE)
    if operator is not None and typed in ("", WHOLE):
        return operator, FLEET, None
    try:
        if operator is not None and typed.startswith(GROUP):
            return operator, FLEET, group_for(typed.removeprefix(GROUP))
        org, _, slug = typed.partition("/")
        for actor in actors:
            if organisations_visible(actor).filter(slug=org).exists():
                organisation = organisation_for(actor, org, MANAGE)
                return actor, Place(organisation, namespace_for(actor, organisation, slug) if slug else None), None
    except NotFound:
        pass
    raise InvalidFields([FieldProblem("place", f"there is no “{typed[:120]}” here" if typed else "say where")])


def _why_not(actors: list[Actor]) -> str:
    """Return why this reader may not create a rule; empty if they may."""
    reason = "Admins of your organisation may make rules. Ask one of them."
    for actor in actors:
        try:
            permit_anywhere(actor, MANAGE)
        except OrganisationSuspended:
            reason = "Your organisation is suspended: rules can be read, not changed."
        except NotPermitted:
            continue
        else:
            return ""
    return reason


def _visible(actors: list[Actor]) -> "QuerySet[AlertRule]":
    if not actors:
        return AlertRule.objects.none()
    for actor in actors:
        permit(actor, READ)
    return reduce(or_, [selectors.rules_visible(actor) for actor in actors])


def _found(actors: list[Actor], rule_id: UUID) -> tuple[Actor, AlertRule]:
    for actor in actors:
        permit(actor, READ)
        try:
            return actor, selectors.rule_for(actor, rule_id)
        except NotFound:
            continue
    raise NotFound("alert rule")
