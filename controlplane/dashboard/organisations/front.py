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
    what = request.POST.get("do", "")
    deed = DEEDS.get(what)
    if deed is None:
        raise NotFound("page")
    found = organisation_for(actor, org, MANAGE)
    form = deed(request, actor, found)
    if form is None:
        return redirect("organisation", found.slug)
    return _page(request, actor, organisation_for(actor, org, READ), {what: form}, status=REFUSED)


def _create_namespace(request: HttpRequest, actor: Actor, found: Organisation) -> forms.Form | None:
    form = NamespaceForm(request.POST, groups=_groups(actor), prefix="new")
    if form.is_valid():
        told = form.cleaned_data
        try:
            group = group_for(told["group"]) if told.get("group") else None
            made = namespace_create(actor=actor, organisation=found, slug=told["slug"], name=told["name"], group=group)
        except Refusal as error:
            form.refuse(error.problems)
        else:
            messages.success(request, f"The namespace {made.slug} is there. It inherits this organisation’s policy.")
            return None
    return form


def _rename(request: HttpRequest, actor: Actor, found: Organisation) -> forms.Form | None:
    form = RenameForm(request.POST, prefix="edit")
    if form.is_valid():
        told = form.cleaned_data
        try:
            changed = organisation_update(
                actor=actor, organisation=found, expected=frozenset({told["revision"]}), name=told["name"]
            )
        except Refusal as error:
            form.refuse(error.problems)
        except StaleRevision as error:
            form.outdated(error, "this organisation")
        else:
            messages.success(request, f"It is called {changed.name} now.")
            return None
    return form


def _suspend(request: HttpRequest, actor: Actor, found: Organisation) -> forms.Form | None:
    permit(actor, OPERATE)
    form = _ending(found, request.POST)
    return form if not form.is_valid() or not _state_set(request, actor, found, form, "suspended") else None


def _lift(request: HttpRequest, actor: Actor, found: Organisation) -> forms.Form | None:
    permit(actor, OPERATE)
    form = _ending(found, {"stop-typed": found.slug, "stop-revision": request.POST.get("stop-revision", "")})
    return form if not form.is_valid() or not _state_set(request, actor, found, form, "active") else None


def _state_set(request: HttpRequest, actor: Actor, found: Organisation, form: EndingForm, state: str) -> bool:
    try:
        expected = frozenset({form.cleaned_data["revision"]})
        organisation_update(actor=actor, organisation=found, expected=expected, state=state)
    except StaleRevision as error:
        form.outdated(error, "this organisation")
        return False
    is_over = state == "suspended"
    told = "is suspended. Gateways refuse its keys as soon as they hold the change." if is_over else "is active again."
    messages.success(request, f"{found.name} {told}")
    return True


PLACES = {"namespace": "new-namespace", "rename": "edit", "suspend": "stop", "lift": "stop"}
Deed = Callable[[HttpRequest, Actor, Organisation], forms.Form | None]
DEEDS: dict[str, Deed] = {"namespace": _create_namespace, "rename": _rename, "suspend": _suspend, "lift": _lift}


def _page(request: HttpRequest, actor: Actor, found: Organisation, tried: Tried, *, status: int = 200) -> HttpResponse:
    of = asked(request.GET.dict())
    spaces = namespaces_found(actor, found, of.find)
    owned, pages, today = by_namespace(found.pk), pager(of, spaces), timezone.now().date()
    may_manage = actor.has(Scope.ADMIN)
    held, paid = holdings_of(found), invoice(found, today.replace(day=1), today, by="model")
    context: dict[str, Any] = {
        "labels": LABELS,
        "headline": headline(found, owned, held.namespaces),
        "owned": owned,
        "resident": sum(owned.resident.values()),
        "of": of,
        "pager": pages,
        "namespaces_title": namespaces_title(pages.total, of.find),
        "rows": [_row(one, owned) for one in namespaces_in_force(pages.rows)],
        "limits": limits_line(limits_of(found.limits)),
        "held": held,
        "may_manage": may_manage,
        "may_write": may_manage and (actor.is_operator or not found.is_suspended),
        "month": paid,
        "models": list(model_lines(paid)),
        "addresses": {
            name: reverse(name, args=[found.slug]) for name in ("keys", "members", "limits", "start", "misses")
        },
        "is_refused": bool(tried),
        "refused_at": next((PLACES[what] for what in tried), ""),
        **_forms(actor, found, tried),
    }
    return shown(request, "front", actor, found, context, status=status)


def _row(one: NamespaceHome, owned: Owned) -> NamespaceRow:
    return NamespaceRow(one, owned.of(one.namespace.pk), owned.resident.get(one.namespace.pk, 0))


def _forms(actor: Actor, found: Organisation, tried: Tried) -> dict[str, forms.Form]:
    """Return the forms, as submitted or empty, with the page's revision."""
    return {
        "namespace_form": tried.get("namespace") or NamespaceForm(groups=_groups(actor), prefix="new"),
        "rename_form": tried.get("rename") or RenameForm(initial={"name": found.name}, prefix="edit"),
        "stop_form": tried.get("suspend") or tried.get("lift") or _ending(found),
    }


def _ending(found: Organisation, sent: Mapping[str, Any] | None = None) -> EndingForm:
    return EndingForm(sent, name=found.slug, what="the organisation’s slug", prefix="stop")


def _groups(actor: Actor) -> list[tuple[str, str]]:
    if not actor.is_operator:
        return []
    return [(one.slug, f"{one.name} ({one.slug})") for one in groups().order_by("slug")]
