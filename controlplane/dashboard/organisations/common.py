"""What the pages of one organisation share."""

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.dashboard.frame import navigation
from tenants.actor import Actor
from tenants.errors import Conflict, FieldProblem, InvalidFields, StaleRevision
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
    """A page within an organisation: its sections on top; of a suspended one its people change nothing."""
    told = {
        "organisation": organisation,
        "sections": navigation.sections(actor, organisation.slug, request.path),
        "is_operator": actor.is_operator,
        "is_frozen": organisation.is_suspended and not actor.is_operator,
        **context,
    }
    return render(request, f"dashboard/organisations/{template}.html", told, status=status)


def refuse(form: forms.Form, problems: Iterable[FieldProblem]) -> None:
    """What a service has against it, beside the field that it is about."""
    for one in problems:
        said = one.message if one.message.endswith((".", "!", "?")) else f"{one.message}."
        if one.field in form.fields:
            form.add_error(one.field, f"{said[0].upper()}{said[1:]}")
        else:
            form.add_error(None, f"{one.field}: {said}")


def outdated(form: forms.Form, error: StaleRevision, what: str) -> None:
    """Somebody was faster: the page shows how it is now, and what was typed stays."""
    told = f"Somebody changed {what} meanwhile: it is revision {error.actual} now, and this page shows it."
    form.add_error(None, f"{told} What you typed is kept: send it again to set it nevertheless.")
