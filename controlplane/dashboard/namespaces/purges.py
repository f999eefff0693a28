"""Pages to purge a namespace, or all namespaces of an organisation, after a typed confirmation."""

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from controlplane.analytics.held import residences_of
from controlplane.analytics.selectors import Scope, residence_by
from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.pages import FORMS, page
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.namespaces.facts import held_most_first
from controlplane.dashboard.namespaces.forms import PurgeForm
from controlplane.dashboard.namespaces.frames import (
    inside,
    may,
    namespace_frame,
    organisation_frame,
    within,
)
from tenants.access import MANAGE, MANAGE_READ, PUBLISH, READ, namespaces_visible, pins_of
from tenants.models import Operation, Pin
from tenants.services.operations import purge

MOST_OPERATIONS = 5


@page(methods=FORMS)
def namespace_purge(request: HttpRequest, org: str, ns: str) -> HttpResponse:
    access = inside(request, org, ns, PUBLISH if request.method == "POST" else READ)
    namespace = access.namespace
    form = _form(request, namespace.slug)
    if form.is_bound and form.is_valid():
        operation = purge(
            actor=access.actor,
            organisation=namespace.organisation,
            namespace=namespace,
            include_pins=form.cleaned_data["include_pins"],
        )
        return redirect("operation", operation.pk)
    residences = held_most_first(residences_of(namespace))
    pins = pins_of(namespace).count()
    context = {
        **namespace_frame(request, access),
        "form": form,
        "held": residences,
        "headline": headline(namespace.slug, sum(size for _, size, _ in residences), len(residences)),
        "pins": _pins_words(pins),
        "may_purge": may(access.actor, PUBLISH, namespace.organisation),
        "may_purge_all": may(access.actor, MANAGE, namespace.organisation),
        "recent": _recent(Operation.objects.filter(namespace=namespace)),
    }
    return render(request, "dashboard/namespaces/purge.html", context, status=422 if form.is_bound else 200)


@page(methods=FORMS)
def organisation_purge(request: HttpRequest, org: str) -> HttpResponse:
    actor, organisation = within(request, org, MANAGE if request.method == "POST" else MANAGE_READ)
    form = _form(request, organisation.slug)
    if form.is_bound and form.is_valid():
        operation = purge(actor=actor, organisation=organisation, include_pins=form.cleaned_data["include_pins"])
        return redirect("operation", operation.pk)
    resident = residence_by(Scope(organisation.pk), by="organisation").get(organisation.pk, 0)
    namespaces = namespaces_visible(actor, organisation).count()
    pins = Pin.objects.filter(namespace__organisation=organisation, namespace__deleted_at=None).count()
    context = {
        **organisation_frame(request, actor, organisation),
        "form": form,
        "headline": f"All {counted(namespaces, 'namespace')} of {organisation.slug} would be purged",
        "holds": f"They hold {bytes_text(resident)} in all caches now, as agents last told.",
        "pins": _pins_words(pins),
        "may_purge": may(actor, MANAGE, organisation),
        "recent": _recent(Operation.objects.filter(organisation=organisation, namespace=None)),
    }
    return render(
        request, "dashboard/namespaces/organisation_purge.html", context, status=422 if form.is_bound else 200
    )


def _form(request: HttpRequest, slug: str) -> PurgeForm:
    return PurgeForm(request.POST if request.method == "POST" else None, name=slug)


def headline(slug: str, resident: int, agents: int) -> str:
    if not resident:
        return f"No agent holds anything of {slug} now"
    return f"A purge of {slug} would drop {bytes_text(resident)} on {counted(agents, 'agent')}"


def _pins_words(pins: int) -> str:
    return f"{counted(pins, 'pin')} {'is' if pins == 1 else 'are'} there." if pins else "There are no pins."


def _recent(operations: "QuerySet[Operation]") -> "QuerySet[Operation]":
    return operations.filter(kind="purge").order_by("-created_at")[:MOST_OPERATIONS]
