"""Operations for asynchronous operations and their receipts, the audit trail, and agent groups."""

from uuid import UUID

from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.cache import AuditShown, OperationShown
from controlplane.api.schemas.tenants import GroupCreate, GroupShown
from tenants import access
from tenants.audit import record_seen
from tenants.services import groups

group = Group("Operations and audit")


@group.get("/operations/{operation_id}", access.READ, OperationShown)
def operation_get(call: Call, operation_id: UUID) -> Answer:
    """Follow an operation.

    It is `done` when every agent concerned has sent its receipt; where no agent is concerned, at once.
    """
    return Answer(OperationShown.of(access.operation_for(call.actor, operation_id)))


@group.get("/audit", access.MANAGE_READ, Page[AuditShown])
def audit_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List what was done, newest first.

    Operators see everything, an organisation what was done in it.
    """
    rows = access.audit_visible(call.actor)
    kind = f"audit:{call.actor.organisation_id}"
    return page(
        rows,
        kind=kind,
        by="seq",
        limit=limit,
        cursor=cursor,
        newest_first=True,
        show=lambda records: AuditShown.each(record_seen(record, call.actor) for record in records),
    )


@group.get("/agent-groups", access.OPERATE_READ, Page[GroupShown])
def groups_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List agent groups.

    Agents and namespaces each belong to one: agents serve the namespaces of theirs. Operators only.
    """
    rows = access.groups()
    return page(rows, kind="groups", by="slug", limit=limit, cursor=cursor, show=GroupShown.each)


@group.post("/agent-groups", access.OPERATE, GroupShown)
def group_create(call: Call, body: GroupCreate) -> Answer:
    """Create an agent group. Operators only."""
    return Answer(GroupShown.of(groups.group_create(actor=call.actor, slug=body.slug, name=body.name)), status=201)


@group.delete("/agent-groups/{slug}", access.OPERATE, refuses=("conflict",))
def group_delete(call: Call, slug: str) -> Answer:
    """Delete an agent group that has no namespaces. Operators only."""
    groups.group_delete(actor=call.actor, group=access.group_for(slug))
    return Answer(status=204)
