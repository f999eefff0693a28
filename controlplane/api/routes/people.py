"""Operations for members and keys of an organisation, operators' tokens, and the caller's identity."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from django.conf import settings

from controlplane.api.paging import Cursor, Limit, page
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.base import Page
from controlplane.api.schemas.people import (
    CallerShown,
    KeyCreate,
    KeyCreated,
    KeyShown,
    LinkShown,
    MemberCreate,
    MemberInvited,
    MemberShown,
    MemberUpdate,
    OperatorTokenCreate,
    OperatorTokenCreated,
    OperatorTokenShown,
)
from tenants import access
from tenants.errors import FieldProblem, InvalidFields
from tenants.models import ApiKey, Namespace
from tenants.services import keys, members

group = Group("People and keys")


@group.get("/whoami", access.ANYONE, CallerShown)
def whoami(call: Call) -> Answer:
    """Say who this token speaks for, and what it may do."""
    actor = call.actor
    organisation = None if actor.is_operator else access.organisation_behind(actor).slug
    bound = None if actor.namespace_ids is None else sorted(access.namespace_slugs(actor.namespace_ids).values())
    return Answer(CallerShown.of(actor, scopes=sorted(actor.scopes), organisation=organisation, namespaces=bound))


@group.get("/orgs/{org}/members", access.MANAGE_READ, Page[MemberShown])
def members_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List members, invited ones included. Ordered by e-mail address."""
    rows = access.members_of(call.organisation)
    kind = f"members:{call.organisation.pk}"
    return page(rows, kind=kind, by="email", limit=limit, cursor=cursor, show=MemberShown.each)


@group.post("/orgs/{org}/members", access.MANAGE, MemberInvited)
def member_invite(call: Call, body: MemberCreate) -> Answer:
    """Invite somebody.

    The answer holds a link that works once, for seven days, and is never shown again: give it to the person.
    """
    member, link = members.member_invite(
        actor=call.actor, organisation=call.organisation, email=body.email, role=body.role
    )
    response = MemberInvited.of(member, invitation_url=_url(link), invitation_expires_at=link.expires_at)
    return Answer(response, status=201, location=f"/api/v1/orgs/{call.organisation.slug}/members/{member.pk}")


@group.get("/orgs/{org}/members/{member_id}", access.MANAGE_READ, MemberShown)
def member_get(call: Call, member_id: UUID) -> Answer:
    """Read one member."""
    return Answer(MemberShown.of(access.member_for(call.organisation, member_id)))


@group.patch("/orgs/{org}/members/{member_id}", access.MANAGE, MemberShown)
def member_update(call: Call, member_id: UUID, body: MemberUpdate) -> Answer:
    """Change a member's role.

    An organisation's own people cannot take the last admin away; operators can.
    """
    member = access.member_for(call.organisation, member_id)
    return Answer(MemberShown.of(members.member_update(actor=call.actor, member=member, role=body.role)))


@group.delete("/orgs/{org}/members/{member_id}", access.MANAGE, refuses=("conflict",))
def member_remove(call: Call, member_id: UUID) -> Answer:
    """Remove a member.

    With this answer the person sees nothing of the organisation any more.
    """
    members.member_remove(actor=call.actor, member=access.member_for(call.organisation, member_id))
    return Answer(status=204)


@group.post("/orgs/{org}/members/{member_id}/link", access.MANAGE, LinkShown)
def member_link(call: Call, member_id: UUID) -> Answer:
    """Issue a new link for a member.

    An invitation for who has not joined yet; a password reset, by operators only, for who has. Earlier links end.
    """
    link = members.member_link(actor=call.actor, member=access.member_for(call.organisation, member_id))
    return Answer(LinkShown.of(link, url=_url(link)), status=201)


@group.get("/orgs/{org}/keys", access.MANAGE_READ, Page[KeyShown])
def keys_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List keys that are not revoked. Secrets are not among what is kept."""
    rows = access.keys_of(call.organisation)
    kind = f"keys:{call.organisation.pk}"
    return page(rows, kind=kind, by="id", limit=limit, cursor=cursor, show=_keys_shown)


@group.post("/orgs/{org}/keys", access.MANAGE, KeyCreated)
def key_create(call: Call, body: KeyCreate) -> Answer:
    """Create a key.

    Its secret is in this answer and nowhere else. `policy:write` includes `policy:read`; `admin` includes every scope
    but `infer`, and cannot be bound to namespaces.
    """
    bound = None if body.namespaces is None else _namespaces(call, body.namespaces)
    key, secret = keys.key_create(
        actor=call.actor,
        organisation=call.organisation,
        name=body.name,
        scopes=body.scopes,
        namespaces=bound,
        expires_at=body.expires_at,
    )
    ((_, slugs),) = _bound_to([key])
    return Answer(KeyCreated.of(key, namespaces=slugs, secret=secret.secret), status=201)


@group.delete("/orgs/{org}/keys/{key_id}", access.MANAGE)
def key_revoke(call: Call, key_id: UUID) -> Answer:
    """Revoke a key.

    It is refused from this answer on.
    """
    keys.key_revoke(actor=call.actor, key=access.key_for(call.organisation, key_id))
    return Answer(status=204)


@group.get("/operator-tokens", access.OPERATE_ADMIN_READ, Page[OperatorTokenShown])
def operator_tokens_list(call: Call, limit: Limit = 50, cursor: Cursor = None) -> Answer:
    """List operators' tokens that are not revoked. Operators only."""
    rows = access.operator_tokens()
    return page(rows, kind="operator-tokens", by="id", limit=limit, cursor=cursor, show=OperatorTokenShown.each)


@group.post("/operator-tokens", access.OPERATE, OperatorTokenCreated)
def operator_token_create(call: Call, body: OperatorTokenCreate) -> Answer:
    """Create a token for the operator whose token this is.

    Its secret is in this answer and nowhere else. It works for as long as that person is an operator.
    """
    token, secret = keys.operator_token_create(
        actor=call.actor,
        user=access.operator_behind(call.actor),
        name=body.name,
        scopes=body.scopes,
        expires_at=body.expires_at,
    )
    return Answer(OperatorTokenCreated.of(token, secret=secret.secret), status=201)


@group.delete("/operator-tokens/{token_id}", access.OPERATE)
def operator_token_revoke(call: Call, token_id: UUID) -> Answer:
    """Revoke an operator's token.

    It is refused from this answer on.
    """
    keys.operator_token_revoke(actor=call.actor, token=access.operator_token_for(token_id))
    return Answer(status=204)


def _keys_shown(api_keys: Sequence[ApiKey]) -> list[KeyShown]:
    return [KeyShown.of(key, namespaces=slugs) for key, slugs in _bound_to(api_keys)]


def _bound_to(api_keys: Sequence[ApiKey]) -> Iterator[tuple[ApiKey, list[str] | None]]:
    """Yield each key with the slugs of the namespaces that it is bound to and that still exist."""
    slugs = access.namespace_slugs({namespace_id for key in api_keys for namespace_id in key.namespace_ids or ()})
    for key in api_keys:
        ids = key.namespace_ids
        yield key, None if ids is None else sorted(slugs[namespace_id] for namespace_id in ids if namespace_id in slugs)


def _namespaces(call: Call, slugs: Sequence[str]) -> list[Namespace]:
    """Return these namespaces, or raise InvalidFields, which names each one that does not exist."""
    namespaces = list(access.namespaces_visible(call.actor, call.organisation).filter(slug__in=slugs))
    known = {namespace.slug for namespace in namespaces}
    if missing := [slug for slug in slugs if slug not in known]:
        raise InvalidFields(FieldProblem("namespaces", f"there is no namespace {slug}") for slug in missing)
    return namespaces


def _url(link: members.NewLink) -> str:
    return f"{settings.ENVIRONMENT.base_url}{link.path}"
