"""Operations for organisations, their bounds and limits."""

from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.cache import PURGE, OperationStarted, Purge
from controlplane.api.schemas.policies import BoundsPut, BoundsShown, LimitsInForce, LimitsPut, LimitsShown
from controlplane.api.schemas.tenants import OrganisationCreate, OrganisationShown, OrganisationUpdate
from tenants import access
from tenants.bounds import bounds_of
from tenants.errors import NotPermitted
from tenants.models import Organisation
from tenants.services import operations, organisations

group = Group("Organisations")


@group.get("/orgs", access.READ, Page[OrganisationShown])
def organisations_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List organisations.

    Operators see all of them, everybody else their own. Ordered by slug.
    """
    rows = access.organisations_visible(call.actor)
    return page(rows, kind="orgs", by="slug", limit=limit, cursor=cursor, show=OrganisationShown.each)


@group.post("/orgs", access.OPERATE, OrganisationShown, gives_etag=True)
def organisation_create(call: Call, body: OrganisationCreate) -> Answer:
    """Create an organisation.

    It gets the namespace `default` at once. Operators only.
    """
    organisation = organisations.organisation_create(actor=call.actor, slug=body.slug, name=body.name)
    return Answer(
        OrganisationShown.of(organisation),
        status=201,
        revision=organisation.revision,
        location=f"/api/v1/orgs/{organisation.slug}",
    )


@group.get("/orgs/{org}", access.READ, OrganisationShown, gives_etag=True)
def organisation_get(call: Call) -> Answer:
    """Read one organisation."""
    return Answer(OrganisationShown.of(call.organisation), revision=call.organisation.revision)


@group.patch("/orgs/{org}", access.MANAGE, OrganisationShown, wants_if_match=True, gives_etag=True)
def organisation_update(call: Call, body: OrganisationUpdate) -> Answer:
    """Rename, suspend or reactivate an organisation.

    A suspended one can be read but not changed by its own people, and its keys infer nothing. Only operators may
    change `state`. Wants `If-Match`.
    """
    expected = call.expected()
    if body.state is not None and not call.actor.is_operator:
        raise NotPermitted("Only operators of this fleet may suspend an organisation or bring it back.")
    changed = organisations.organisation_update(
        actor=call.actor, organisation=call.organisation, expected=expected, name=body.name, state=body.state
    )
    return Answer(OrganisationShown.of(changed), revision=changed.revision)


@group.delete("/orgs/{org}", access.OPERATE, OperationStarted, status=202, wants_if_match=True)
def organisation_delete(call: Call) -> Answer:
    """Delete an organisation.

    With this answer its keys have stopped and nothing it cached can be addressed any more. Its data goes when every
    agent has shown its receipt: follow the operation. Operators only; wants `If-Match`.
    """
    operation = organisations.organisation_delete(
        actor=call.actor, organisation=call.organisation, expected=call.expected()
    )
    return Answer(OperationStarted(operation=operation.pk), status=202, location=f"/api/v1/operations/{operation.pk}")


@group.post("/orgs/{org}/purge", access.MANAGE, OperationStarted, status=202)
def organisation_purge(call: Call, body: Purge = PURGE) -> Answer:
    """Purge all namespaces of an organisation.

    From this answer on nothing cached before can match. Agents prove it with receipts: follow the operation.
    """
    operation = operations.purge(actor=call.actor, organisation=call.organisation, include_pins=body.include_pins)
    return Answer(OperationStarted(operation=operation.pk), status=202, location=f"/api/v1/operations/{operation.pk}")


@group.get("/orgs/{org}/bounds", access.READ, BoundsShown, gives_etag=True)
def bounds_get(call: Call) -> Answer:
    """Read what the organisation's members may change.

    Fields that are not named are the operator's. Revision 0 is the product's default.
    """
    return _bounds(call.organisation)


@group.put("/orgs/{org}/bounds", access.OPERATE, BoundsShown, wants_if_match=True, gives_etag=True)
def bounds_put(call: Call, body: BoundsPut) -> Answer:
    """Replace what the organisation's members may change, and how far.

    What is in force already stays as it is. Operators only; wants `If-Match`.
    """
    return _bounds(
        organisations.bounds_put(
            actor=call.actor, organisation=call.organisation, bounds=body.bounds, expected=call.expected()
        )
    )


@group.get("/orgs/{org}/limits", access.READ, LimitsShown, gives_etag=True)
def limits_get(call: Call) -> Answer:
    """Read the organisation's limits."""
    return _limits(call.organisation)


@group.put("/orgs/{org}/limits", access.OPERATE, LimitsShown, wants_if_match=True, gives_etag=True)
def limits_put(call: Call, body: LimitsPut) -> Answer:
    """Replace the organisation's limits.

    A limit below what exists deletes nothing; it only stops more. Operators only; wants `If-Match`.
    """
    return _limits(
        organisations.limits_put(
            actor=call.actor, organisation=call.organisation, limits=body.limits, expected=call.expected()
        )
    )


def _bounds(organisation: Organisation) -> Answer:
    revision = organisation.bounds_revision
    bounds = bounds_of(organisation.bounds, revision).model_dump(exclude_none=True)
    return Answer(BoundsShown(revision=revision, bounds=bounds), revision=revision)


def _limits(organisation: Organisation) -> Answer:
    revision = organisation.limits_revision
    return Answer(
        LimitsShown(revision=revision, limits=LimitsInForce.model_validate(organisation.limits)), revision=revision
    )
