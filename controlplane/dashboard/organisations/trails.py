"""The audit trail of one organisation."""

from django.http import HttpRequest, HttpResponse

from controlplane.dashboard.audit.rows import trail_row
from controlplane.dashboard.frame.pages import actor_within, page
from controlplane.dashboard.frame.paging import asked, pager
from controlplane.dashboard.frame.words import counted
from controlplane.dashboard.organisations.common import shown
from tenants.access import MANAGE_READ, organisation_for
from tenants.audit import record_seen
from tenants.listing import records_found


@page()
def organisation_audit(request: HttpRequest, org: str) -> HttpResponse:
    actor = actor_within(request, org)
    organisation, list_request = organisation_for(actor, org, MANAGE_READ), asked(request.GET.dict())
    records = records_found(actor, organisation, list_request.find)
    pages = pager(list_request, records)
    about = f"about “{list_request.find}”" if list_request.find else f"in {organisation.name}"
    context = {
        "headline": f"{counted(pages.total, 'thing')} {'was' if pages.total == 1 else 'were'} done {about}",
        "of": list_request,
        "pager": pages,
        "rows": [trail_row(record_seen(record, actor)) for record in pages],
    }
    return shown(request, "trail", actor, organisation, context)
