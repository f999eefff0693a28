"""The operators' list of organisations, and the form to create one."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from controlplane.analytics.owned import by_organisation
from controlplane.dashboard.frame.pages import FORMS, operator_of, page
from controlplane.dashboard.frame.paging import asked, pager
from controlplane.dashboard.organisations.common import REFUSED, Refusal
from controlplane.dashboard.organisations.forms import OrganisationForm
from controlplane.dashboard.organisations.list_rows import (
    BY_NUMBERS,
    ORDERS,
    Counts,
    headline,
    heads,
    is_little,
    measured,
    ordered,
)
from tenants.access import OPERATE, permit
from tenants.listing import Listed, namespaces_counted, organisations_found
from tenants.services.organisations import organisation_create


@page()
def organisations(request: HttpRequest) -> HttpResponse:
    """List organisations; count only those on the page, unless sorted by a count."""
    actor, list_request = operator_of(request), asked(request.GET.dict(), orders=ORDERS)
    matches = organisations_found(actor, list_request.find)
    owned = by_organisation() if list_request.order.removeprefix("-") in BY_NUMBERS else None
    pages = pager(list_request, ordered(matches, list_request.order, {} if owned is None else owned.counts))
    owned = owned or by_organisation([row.pk for row in pages])
    namespace_counts = namespaces_counted([row.pk for row in pages])
    context: dict[str, Any] = {
        "headline": headline(len(matches), sum(row.state == "suspended" for row in matches), list_request),
        "advice": measured(owned.window_seconds, owned.covered_seconds),
        "as_of": owned.as_of,
        "of": list_request,
        "heads": heads(list_request),
        "rows": [_row(row, namespace_counts.get(row.pk, 0), owned.of(row.pk)) for row in pages],
        "pager": pages,
    }
    return render(request, "dashboard/organisations/list.html", context)


def _row(row: Listed, namespaces: int, counts: Counts) -> tuple[Listed, int, Counts, bool]:
    return row, namespaces, counts, is_little(counts)


@page(methods=FORMS)
def organisation_new(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    permit(actor, OPERATE)
    form = OrganisationForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            organisation = organisation_create(actor=actor, **form.cleaned_data)
        except Refusal as error:
            form.refuse(error.problems)
        else:
            messages.success(request, f"{organisation.name} is there, with the namespace default. Next: a key for it.")
            return redirect("organisation", organisation.slug)
    status = REFUSED if request.method == "POST" else 200
    return render(request, "dashboard/organisations/new.html", {"form": form}, status=status)
