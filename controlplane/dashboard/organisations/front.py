"""The front page of an organisation: create namespaces, rename it, suspend it, lift a suspension."""

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from controlplane.analytics.invoices import invoice
from controlplane.analytics.owned import Owned, by_namespace
from controlplane.dashboard.frame.pages import FORMS, actor_within, page
from controlplane.dashboard.frame.paging import asked, pager
from controlplane.dashboard.organisations.common import REFUSED, Refusal, shown
from controlplane.dashboard.organisations.forms import EndingForm, NamespaceForm, RenameForm
from controlplane.dashboard.organisations.front_rows import (
    NamespaceRow,
    headline,
    limits_line,
    model_lines,
    namespaces_title,
)
from engine_agent.contracts.policy_fields import LABELS
from tenants.access import MANAGE, OPERATE, READ, group_for, groups, organisation_for, permit
from tenants.actor import Actor, Scope
from tenants.errors import NotFound, StaleRevision
from tenants.homes import NamespaceHome
from tenants.limits import limits_of
from tenants.listing import holdings_of, namespaces_found, namespaces_in_force
from tenants.models import Organisation
from tenants.services.namespaces import namespace_create
from tenants.services.organisations import organisation_update

Tried = Mapping[str, forms.Form]


@page(methods=FORMS)
def organisation(request: HttpRequest, org: str) -> HttpResponse:
    actor = actor_within(request, org)
    if request.method != "POST":
        return _page(request, actor, organisation_for(actor, org, READ), {})
    action = request.POST.get("do", "")
    handler = DEEDS.get(action)
    if handler is None:
        raise NotFound("page")
    organisation = organisation_for(actor, org, MANAGE)
    form = handler(request, actor, organisation)
    if form is None:
        return redirect("organisation", organisation.slug)
    return _page(request, actor, organisation_for(actor, org, READ), {action: form}, status=REFUSED)


def _create_namespace(request: HttpRequest, actor: Actor, organisation: Organisation) -> forms.Form | None:
    form = NamespaceForm(request.POST, groups=_groups(actor), prefix="new")
    if form.is_valid():
        cleaned = form.cleaned_data
        try:
            group = group_for(cleaned["group"]) if cleaned.get("group") else None
            namespace = namespace_create(
                actor=actor, organisation=organisation, slug=cleaned["slug"], name=cleaned["name"], group=group
            )
        except Refusal as error:
            form.refuse(error.problems)
        else:
            messages.success(
                request, f"The namespace {namespace.slug} is there. It inherits this organisation’s policy."
            )
            return None
    return form


def _rename(request: HttpRequest, actor: Actor, organisation: Organisation) -> forms.Form | None:
    form = RenameForm(request.POST, prefix="edit")
    if form.is_valid():
        cleaned = form.cleaned_data
        try:
            changed = organisation_update(
                actor=actor, organisation=organisation, expected=frozenset({cleaned["revision"]}), name=cleaned["name"]
            )
        except Refusal as error:
            form.refuse(error.problems)
        except StaleRevision as error:
            form.outdated(error, "this organisation")
        else:
            messages.success(request, f"It is called {changed.name} now.")
            return None
    return form


def _suspend(request: HttpRequest, actor: Actor, organisation: Organisation) -> forms.Form | None:
    permit(actor, OPERATE)
    form = _ending(organisation, request.POST)
    return form if not form.is_valid() or not _state_set(request, actor, organisation, form, "suspended") else None


def _lift(request: HttpRequest, actor: Actor, organisation: Organisation) -> forms.Form | None:
    permit(actor, OPERATE)
    form = _ending(
        organisation, {"stop-typed": organisation.slug, "stop-revision": request.POST.get("stop-revision", "")}
    )
    return form if not form.is_valid() or not _state_set(request, actor, organisation, form, "active") else None


def _state_set(request: HttpRequest, actor: Actor, organisation: Organisation, form: EndingForm, state: str) -> bool:
    try:
        expected = frozenset({form.cleaned_data["revision"]})
        organisation_update(actor=actor, organisation=organisation, expected=expected, state=state)
    except StaleRevision as error:
        form.outdated(error, "this organisation")
        return False
    is_over = state == "suspended"
    outcome = (
        "is suspended. Gateways refuse its keys as soon as they hold the change." if is_over else "is active again."
    )
    messages.success(request, f"{organisation.name} {outcome}")
    return True


PLACES = {"namespace": "new-namespace", "rename": "edit", "suspend": "stop", "lift": "stop"}
Deed = Callable[[HttpRequest, Actor, Organisation], forms.Form | None]
DEEDS: dict[str, Deed] = {"namespace": _create_namespace, "rename": _rename, "suspend": _suspend, "lift": _lift}


def _page(
    request: HttpRequest, actor: Actor, organisation: Organisation, tried: Tried, *, status: int = 200
) -> HttpResponse:
    list_request = asked(request.GET.dict())
    namespaces = namespaces_found(actor, organisation, list_request.find)
    owned, pages, today = by_namespace(organisation.pk), pager(list_request, namespaces), timezone.now().date()
    may_manage = actor.has(Scope.ADMIN)
    holdings, month_invoice = holdings_of(organisation), invoice(organisation, today.replace(day=1), today, by="model")
    context: dict[str, Any] = {
        "labels": LABELS,
        "headline": headline(organisation, owned, holdings.namespaces),
        "owned": owned,
        "resident": sum(owned.resident.values()),
        "of": list_request,
        "pager": pages,
        "namespaces_title": namespaces_title(pages.total, list_request.find),
        "rows": [_row(namespace_home, owned) for namespace_home in namespaces_in_force(pages.rows)],
        "limits": limits_line(limits_of(organisation.limits)),
        "held": holdings,
        "may_manage": may_manage,
        "may_write": may_manage and (actor.is_operator or not organisation.is_suspended),
        "month": month_invoice,
        "models": list(model_lines(month_invoice)),
        "addresses": {
            name: reverse(name, args=[organisation.slug]) for name in ("keys", "members", "limits", "start", "misses")
        },
        "is_refused": bool(tried),
        "refused_at": next((PLACES[action] for action in tried), ""),
        **_forms(actor, organisation, tried),
    }
    return shown(request, "front", actor, organisation, context, status=status)


def _row(namespace_home: NamespaceHome, owned: Owned) -> NamespaceRow:
    return NamespaceRow(
        namespace_home, owned.of(namespace_home.namespace.pk), owned.resident.get(namespace_home.namespace.pk, 0)
    )


def _forms(actor: Actor, organisation: Organisation, tried: Tried) -> dict[str, forms.Form]:
    """Return the forms, as submitted or empty, with the page's revision."""
    return {
        "namespace_form": tried.get("namespace") or NamespaceForm(groups=_groups(actor), prefix="new"),
        "rename_form": tried.get("rename") or RenameForm(initial={"name": organisation.name}, prefix="edit"),
        "stop_form": tried.get("suspend") or tried.get("lift") or _ending(organisation),
    }


def _ending(organisation: Organisation, submitted: Mapping[str, Any] | None = None) -> EndingForm:
    return EndingForm(submitted, name=organisation.slug, what="the organisation’s slug", prefix="stop")


def _groups(actor: Actor) -> list[tuple[str, str]]:
    if not actor.is_operator:
        return []
    return [(group.slug, f"{group.name} ({group.slug})") for group in groups().order_by("slug")]
