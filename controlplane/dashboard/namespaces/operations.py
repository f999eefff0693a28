"""The page of one operation, which shows receipts as they arrive."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from controlplane.dashboard.frame.pages import actors_of, page, part
from controlplane.dashboard.frame.requests import STOP_ASKING
from controlplane.dashboard.namespaces.frames import organisation_frame
from controlplane.dashboard.namespaces.operation_words import advice, title
from tenants.access import operation_for
from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.models import Operation

MOST_SHOWN = 200


@page()
def operation(request: HttpRequest, operation: UUID) -> HttpResponse:
    actor, stored_operation = _found(request, operation)
    return render(
        request,
        "dashboard/namespaces/operation.html",
        {**operation_context(stored_operation), **_frame(request, actor, stored_operation)},
    )


@part
def operation_now(request: HttpRequest, operation: UUID) -> HttpResponse:
    """Render the receipts for HTMX, or answer 204 if the page has shown them all."""
    try:
        _, stored_operation = _found(request, operation)
    except NotFound:  # access has ended: leave the page as it is and stop polling
        return HttpResponse(status=STOP_ASKING, headers={"HX-Reswap": "none"})
    now = operation_context(stored_operation)
    if request.GET.get("seen") == str(now["seen"]) and not now["is_over"]:
        return HttpResponse(status=204)
    status = STOP_ASKING if now["is_over"] else 200
    return render(request, "dashboard/namespaces/_operation.html", {**now, "swapped": True}, status=status)


def _found(request: HttpRequest, pk: UUID) -> tuple[Actor, Operation]:
    """Return the operation, and the first of the user's actors who may see it."""
    for actor in actors_of(request):
        try:
            return actor, operation_for(actor, pk)
        except NotFound:
            continue
    raise NotFound("operation")


def operation_context(operation: Operation) -> dict[str, Any]:
    """Return the context: awaited agents, then the newest receipts. `seen`: receipts shown."""
    receipts, awaited = operation.receipts, operation.awaited_agents
    shown_agents = awaited[:MOST_SHOWN]
    return {
        "operation": operation,
        "title": title(
            kind=operation.kind, scope=operation.scope, state=operation.state, receipts=receipts, awaited=awaited
        ),
        "advice": advice(kind=operation.kind, receipts=receipts, awaited=awaited),
        "awaited": shown_agents,
        "receipts": receipts[::-1][: MOST_SHOWN - len(shown_agents)],
        "unshown": max(0, len(receipts) + len(awaited) - MOST_SHOWN),
        "seen": len(receipts),
        "is_over": operation.state != Operation.State.RUNNING,
    }


def _frame(request: HttpRequest, actor: Actor, operation: Operation) -> dict[str, Any]:
    """Return the frame of the operation's organisation, if that still exists."""
    organisation, namespace = operation.organisation, operation.namespace
    if organisation is None or organisation.state == organisation.State.DELETED:
        return {"is_within": False}
    is_there = namespace is not None and namespace.deleted_at is None
    purge_address = (
        reverse("purge", args=[organisation.slug, namespace.slug]) if namespace is not None and is_there else ""
    )
    frame = organisation_frame(request, actor, organisation, path=purge_address)
    return {"is_within": True, "namespace_address": purge_address, **frame}
