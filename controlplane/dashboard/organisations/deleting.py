"""Delete an organisation after showing how much it contains and asking for its name."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.analytics.owned import by_namespace
from controlplane.dashboard.frame.charts import bytes_text
from controlplane.dashboard.frame.pages import FORMS, actor_within, operator_of, page
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.organisations.common import REFUSED, shown
from controlplane.dashboard.organisations.forms import EndingForm
from tenants.access import OPERATE, organisation_for
from tenants.errors import StaleRevision
from tenants.listing import holdings_of
from tenants.services.organisations import organisation_delete as delete


@page(methods=FORMS)
def organisation_delete(request: HttpRequest, org: str) -> HttpResponse:
    operator_of(request)
    actor = actor_within(request, org)
    organisation = organisation_for(actor, org, OPERATE)
    form = EndingForm(request.POST or None, name=organisation.slug, what="the organisation’s slug")
    if request.method == "POST" and form.is_valid():
        try:
            operation = delete(
                actor=actor, organisation=organisation, expected=frozenset({form.cleaned_data["revision"]})
            )
        except StaleRevision as error:
            form.outdated(error, "this organisation")
            organisation = organisation_for(actor, org, OPERATE)
        else:
            message = (
                f"{organisation.name} ({organisation.slug}) is deleted: its keys have stopped, "
                "and nothing it cached can match."
            )
            messages.success(request, f"{message} Agents prove it with receipts, below.")
            return redirect("operation", operation.pk)
    holdings, owned = holdings_of(organisation), by_namespace(organisation.pk)
    context = {
        "form": form,
        "headline": f"Deleting {organisation.name} ends {counted(holdings.keys, 'key')} "
        f"and {counted(holdings.namespaces, 'cache')}",
        "held": holdings,
        "resident": bytes_text(sum(owned.resident.values())),
        "requests": f"{owned.total['requests']:,}",
        "as_of": owned.as_of,
    }
    return shown(request, "delete", actor, organisation, context, status=REFUSED if request.method == "POST" else 200)
