"""Operations for namespaces, their purges and their pins."""

from collections.abc import Sequence
from uuid import UUID

from controlplane.analytics.held import pins_held
from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.cache import PURGE, OperationStarted, PinCreate, PinShown, Purge
from controlplane.api.schemas.tenants import NamespaceCreate, NamespaceShown, NamespaceUpdate
from tenants import access
from tenants.actor import Actor
from tenants.errors import FieldProblem, InvalidFields, NotFound, NotPermitted
from tenants.models import AgentGroup, Namespace, Pin
from tenants.services import namespaces, operations, pins

group = Group("Namespaces")


@group.get("/orgs/{org}/namespaces", access.READ, Page[NamespaceShown])
def namespaces_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List namespaces.

    A key that is bound to some sees those. Ordered by slug.
    """
    rows = access.namespaces_visible(call.actor, call.organisation).select_related("policy_level")
    kind = f"namespaces:{call.organisation.pk}"
    return page(rows, kind=kind, by="slug", limit=limit, cursor=cursor, show=NamespaceShown.each)


@group.post("/orgs/{org}/namespaces", access.MANAGE, NamespaceShown, gives_etag=True)
def namespace_create(call: Call, body: NamespaceCreate) -> Answer:
    """Create a namespace.

    It inherits its organisation's policy and has a secret key of its own. Only operators may choose a `group`.
    """
    namespace = namespaces.namespace_create(
        actor=call.actor,
        organisation=call.organisation,
        slug=body.slug,
        name=body.name,
        group=_group(call.actor, body.group),
    )
    location = f"/api/v1/orgs/{call.organisation.slug}/namespaces/{namespace.slug}"
    return Answer(NamespaceShown.of(namespace), status=201, revision=namespace.revision, location=location)


@group.get("/orgs/{org}/namespaces/{ns}", access.READ, NamespaceShown, gives_etag=True)
def namespace_get(call: Call) -> Answer:
    """Read one namespace."""
    return Answer(NamespaceShown.of(call.namespace), revision=call.namespace.revision)


@group.patch("/orgs/{org}/namespaces/{ns}", access.MANAGE, NamespaceShown, wants_if_match=True, gives_etag=True)
def namespace_update(call: Call, body: NamespaceUpdate) -> Answer:
    """Rename a namespace, or move it to other agents.

    Only operators may change `group`. Wants `If-Match`.
    """
    expected = call.expected()
    changed = namespaces.namespace_update(
        actor=call.actor,
        namespace=call.namespace,
        expected=expected,
        name=body.name,
        group=_group(call.actor, body.group),
    )
    return Answer(NamespaceShown.of(changed), revision=changed.revision)


@group.delete(
    "/orgs/{org}/namespaces/{ns}",
    access.MANAGE,
    OperationStarted,
    status=202,
    wants_if_match=True,
    refuses=("conflict",),
)
def namespace_delete(call: Call) -> Answer:
    """Delete a namespace.

    With this answer nothing it cached can be addressed any more. Agents prove it with receipts: follow the operation.
    `default` cannot be deleted. Wants `If-Match`.
    """
    operation = namespaces.namespace_delete(actor=call.actor, namespace=call.namespace, expected=call.expected())
    return Answer(OperationStarted(operation=operation.pk), status=202, location=f"/api/v1/operations/{operation.pk}")


@group.post("/orgs/{org}/namespaces/{ns}/purge", access.PUBLISH, OperationStarted, status=202)
def namespace_purge(call: Call, body: Purge = PURGE) -> Answer:
    """Purge a namespace.

    From this answer on nothing cached before can match. Agents prove it with receipts: follow the operation.
    """
    operation = operations.purge(
        actor=call.actor,
        organisation=call.organisation,
        namespace=call.namespace,
        include_pins=body.include_pins,
    )
    return Answer(OperationStarted(operation=operation.pk), status=202, location=f"/api/v1/operations/{operation.pk}")


@group.get("/orgs/{org}/namespaces/{ns}/pins", access.READ, Page[PinShown])
def pins_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List pins, without their content.

    Ordered by name, with what each agent holds of them, as it last told.
    """
    kind = f"pins:{call.namespace.pk}"
    return page(
        access.pins_of(call.namespace),
        kind=kind,
        by="name",
        limit=limit,
        cursor=cursor,
        show=lambda pins: _pins_shown(call.namespace, pins),
    )


@group.post("/orgs/{org}/namespaces/{ns}/pins", access.PUBLISH, PinShown)
def pin_create(call: Call, body: PinCreate) -> Answer:
    """Pin a prefix.

    Agents keep it cached within the namespace's `pin_share`. Its content is encrypted and cannot be read back.
    """
    kind, content = body.content
    pin = pins.pin_create(
        actor=call.actor,
        namespace=call.namespace,
        name=body.name,
        model=body.model,
        content_kind=kind,
        content=content,
        expires_at=body.expires_at,
    )
    return Answer(PinShown.of(pin, agents=()), status=201)


@group.delete("/orgs/{org}/namespaces/{ns}/pins/{pin_id}", access.PUBLISH)
def pin_delete(call: Call, pin_id: UUID) -> Answer:
    """Unpin a prefix.

    Its blocks stay as long as the policy keeps any others.
    """
    pins.pin_delete(actor=call.actor, pin=access.pin_for(call.namespace, pin_id))
    return Answer(status=204)


def _pins_shown(namespace: Namespace, pins: Sequence[Pin]) -> list[PinShown]:
    agents_by_pin = pins_held(namespace, [pin.pk for pin in pins])
    return [PinShown.of(pin, agents=agents_by_pin.get(pin.pk, ())) for pin in pins]


def _group(actor: Actor, slug: str | None) -> AgentGroup | None:
    if slug is None:
        return None
    if not actor.is_operator:
        raise NotPermitted("Only operators of this fleet may choose the agents of a namespace.")
    try:
        return access.group_for(slug)
    except NotFound as error:
        raise InvalidFields([FieldProblem("group", f"{slug!r}: {error}")]) from None
