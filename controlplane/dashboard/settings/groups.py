"""Agent groups, which decide which agents serve which namespaces."""

from typing import Any

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.dashboard.frame.forms import ConfirmForm
from controlplane.dashboard.frame.pages import FORMS, operator_of, page
from controlplane.dashboard.frame.paging import page_asked, pager
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.settings.forms import GroupForm
from controlplane.dashboard.settings.rows import why_stays
from controlplane.dashboard.settings.settings import REFUSED, shown
from controlplane.fleet.selectors import agents_living
from tenants.access import OPERATE, OPERATE_READ, group_for, groups, permit
from tenants.actor import Actor
from tenants.errors import Conflict, InvalidFields
from tenants.models import AgentGroup
from tenants.services.groups import group_create, group_delete


@page(methods=FORMS)
def settings_groups(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    permit(actor, OPERATE if request.method == "POST" else OPERATE_READ)
    if request.method != "POST":
        return _page(request)
    return _delete(request, actor) if request.POST.get("do") == "delete" else _create(request, actor)


def _create(request: HttpRequest, actor: Actor) -> HttpResponse:
    form = GroupForm(request.POST)
    if form.is_valid():
        try:
            group = group_create(actor=actor, slug=form.cleaned_data["slug"], name=form.cleaned_data["name"])
        except (InvalidFields, Conflict) as error:
            form.refuse(error.problems)
        else:
            messages.success(request, f"The group {group.slug} is there. Agents join it with a token made for it.")
            return redirect("settings-groups")
    return _page(request, form=form, status=REFUSED)


def _delete(request: HttpRequest, actor: Actor) -> HttpResponse:
    group = group_for(request.POST.get("group", "").replace("\0", ""))
    form = ConfirmForm(request.POST, name=group.slug, prefix="end")
    if form.is_valid():
        try:
            group_delete(actor=actor, group=group)
        except Conflict as error:
            form.add_error(None, " ".join(f"{problem.field}: {problem.message}." for problem in error.problems))
        else:
            messages.success(request, f"The group {group.slug} is deleted.")
            return redirect("settings-groups")
    return _page(request, ending=(group, form), status=REFUSED)


def _page(
    request: HttpRequest,
    *,
    form: GroupForm | None = None,
    ending: tuple[AgentGroup, ConfirmForm] | None = None,
    status: int = 200,
) -> HttpResponse:
    pages = pager(page_asked(request.GET), groups().order_by("slug"))
    page_groups = list(pages)
    agents, namespaces = _belonging(page_groups)
    if ending is None and "delete" in request.GET:
        group = group_for(request.GET["delete"].replace("\0", ""))
        ending = (group, ConfirmForm(name=group.slug, prefix="end"))
    context: dict[str, Any] = {
        "headline": f"{counted(pages.total, 'group')} of agents, each serving the namespaces that belong to it",
        "rows": [_row(group, agents.get(group.pk, 0), namespaces.get(group.pk, 0)) for group in page_groups],
        "pager": pages,
        "form": form or GroupForm(),
        "ending": ending and ending[0],
        "ending_form": ending and ending[1],
    }
    return shown(request, "groups", context, status=status)


def _row(group: AgentGroup, agents: int, namespaces: int) -> tuple[AgentGroup, int, int, str]:
    return group, agents, namespaces, why_stays(group, agents, namespaces)


def _belonging(agent_groups: list[AgentGroup]) -> tuple[dict[int, int], dict[int, int]]:
    """Count agents and namespaces of each group, in two queries."""
    agents = agents_living().filter(group__in=agent_groups).order_by().values_list("group").annotate(count=Count("pk"))
    living = Count("namespaces", filter=Q(namespaces__deleted_at=None))
    namespaces = (
        groups().filter(pk__in=[group.pk for group in agent_groups]).order_by().values_list("pk").annotate(count=living)
    )
    return dict(agents), dict(namespaces)
