"""Rendering that the pages of one organisation share."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.dashboard.frame import navigation
from tenants.actor import Actor
from tenants.errors import Conflict, InvalidFields
from tenants.models import Organisation

REFUSED = 422
Refusal = (Conflict, InvalidFields)


def shown(
    request: HttpRequest,
    template: str,
    actor: Actor,
    organisation: Organisation,
    context: Mapping[str, Any],
    *,
    status: int = 200,
) -> HttpResponse:
    """Render a page with the organisation's tabs; members of a suspended one change nothing."""
    page_context = {
        "organisation": organisation,
        "sections": navigation.sections(actor, organisation.slug, request.path),
        "is_operator": actor.is_operator,
        "is_frozen": organisation.is_suspended and not actor.is_operator,
        **context,
    }
    return render(request, f"dashboard/organisations/{template}.html", page_context, status=status)
