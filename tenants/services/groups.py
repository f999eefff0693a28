"""Agent groups: created, and deleted while they are empty."""

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from tenants.actor import Actor
from tenants.audit import audited
from tenants.errors import Conflict, FieldProblem, NotFound, Taken
from tenants.fields import name_check, slug_check
from tenants.models import AgentGroup
from tenants.models.organisations import DEFAULT


def group_create(*, actor: Actor, slug: str, name: str) -> AgentGroup:
    group = AgentGroup(slug=slug_check(slug), name=name_check(name))
    with audited() as journal:
        try:
            with transaction.atomic():
                group.save()
        except IntegrityError:
            raise Taken("slug", slug, "agent group") from None
        journal.record(actor, "group.create", f"group {slug}", after={"slug": slug, "name": group.name})
    return group


def group_delete(*, actor: Actor, group: AgentGroup) -> None:
    if group.slug == DEFAULT:
        raise Conflict([FieldProblem("group", "default is where namespaces belong unless told otherwise; it stays")])
    with audited() as journal:
        # Locked so that no namespace can join it meanwhile.
        if not AgentGroup.objects.select_for_update().filter(pk=group.pk):
            raise NotFound("agent group")
        journal.record(actor, "group.delete", f"group {group.slug}", before={"slug": group.slug, "name": group.name})
        try:
            with transaction.atomic():
                group.delete()
        except ProtectedError:
            raise Conflict([FieldProblem("group", "namespaces or agents belong to it; move them first")]) from None
