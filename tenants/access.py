"""Every lookup of an organisation and of what belongs to it, under the actor's permissions.

"Not yours" and "not there" take the same path: one query, limited to what the actor may see, and one error. The error
for a missing scope is raised only within the actor's own organisation.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q, QuerySet

from tenants.actor import REST_SCOPES, ROLE_SCOPES, Actor, ActorKind, Scope, scopes_expanded
from tenants.crypto import secret_hash, secret_is_well_formed
from tenants.errors import InvalidToken, MissingScope, NotFound, NotPermitted, OrganisationSuspended
from tenants.models import (
    AgentGroup,
    ApiKey,
    AuditRecord,
    Member,
    Namespace,
    Operation,
    OperatorToken,
    Organisation,
    Pin,
    User,
)

KEY_KIND, OPERATOR_TOKEN_KIND = "lmk", "lmo"
LAST_USED_STEP = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Rule:
    """The permissions that an action requires."""

    scope: Scope | None  # None: any valid token
    writes: bool = False
    operators_only: bool = False
    whole_organisation: bool = False  # not for keys bound to single namespaces


ANYONE = Rule(None)
READ = Rule(Scope.POLICY_READ)
READ_WHOLE = Rule(Scope.POLICY_READ, whole_organisation=True)
STATS_READ = Rule(Scope.STATS_READ)
STATS_READ_WHOLE = Rule(Scope.STATS_READ, whole_organisation=True)
PUBLISH = Rule(Scope.POLICY_WRITE, writes=True)
PUBLISH_WHOLE = Rule(Scope.POLICY_WRITE, writes=True, whole_organisation=True)
MANAGE_READ = Rule(Scope.ADMIN, whole_organisation=True)
MANAGE = Rule(Scope.ADMIN, writes=True, whole_organisation=True)
OPERATE_READ = Rule(Scope.POLICY_READ, operators_only=True)
OPERATE_STATS_READ = Rule(Scope.STATS_READ, operators_only=True)
OPERATE_PUBLISH = Rule(Scope.POLICY_WRITE, writes=True, operators_only=True)
OPERATE = Rule(Scope.ADMIN, writes=True, operators_only=True)
OPERATE_ADMIN_READ = Rule(Scope.ADMIN, operators_only=True)


def actor_for_token(secret: str, *, now: datetime, address: str, request_id: str) -> Actor:
    """Return the actor of a bearer token. Raise InvalidToken."""
    if secret_is_well_formed(KEY_KIND, secret):
        return _key_actor(secret_hash(secret), now, address, request_id)
    if secret_is_well_formed(OPERATOR_TOKEN_KIND, secret):
        return _operator_token_actor(secret_hash(secret), now, address, request_id)
    raise InvalidToken


def _alive(now: datetime) -> Q:
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))


def _key_actor(hash_: bytes, now: datetime, address: str, request_id: str) -> Actor:
    active_keys = ApiKey.objects.filter(_alive(now), hash=hash_).exclude(organisation__state=Organisation.State.DELETED)
    key = active_keys.first()
    if key is None:
        raise InvalidToken
    _used(ApiKey.objects.filter(pk=key.pk), key.last_used_at, now)
    bound = None if key.namespace_ids is None else frozenset(key.namespace_ids)
    scopes = scopes_expanded(key.scopes)
    return Actor(ActorKind.KEY, str(key.pk), key.name, scopes, key.organisation_id, bound, address, request_id)


def _operator_token_actor(hash_: bytes, now: datetime, address: str, request_id: str) -> Actor:
    active_tokens = OperatorToken.objects.filter(_alive(now), hash=hash_, user__is_active=True, user__is_operator=True)
    token = active_tokens.select_related("user").first()
    if token is None:
        raise InvalidToken
    _used(OperatorToken.objects.filter(pk=token.pk), token.last_used_at, now)
    name = f"{token.user.email} ({token.name})"[:254]
    scopes = scopes_expanded(token.scopes)
    return Actor(ActorKind.OPERATOR_TOKEN, str(token.pk), name, scopes, address=address, request_id=request_id)


def actor_for_operator(user: User, *, address: str = "", request_id: str = "") -> Actor:
    """Return the actor of a signed-in operator."""
    return Actor(ActorKind.OPERATOR, str(user.pk), user.email, REST_SCOPES, address=address, request_id=request_id)


def actor_for_member(member: Member, *, address: str = "", request_id: str = "") -> Actor:
    """Return the actor of a signed-in member of an organisation, with the scopes of their role."""
    return Actor(
        ActorKind.MEMBER,
        str(member.user_id),
        member.email,
        ROLE_SCOPES[member.role],
        member.organisation_id,
        address=address,
        request_id=request_id,
    )


def _used(row: "QuerySet[ApiKey] | QuerySet[OperatorToken]", last: datetime | None, now: datetime) -> None:
    """Update the time of last use at most once a minute: a write for every request would cost too much."""
    if last is None or now - last >= LAST_USED_STEP:
        row.update(last_used_at=now)


def permit(actor: Actor, rule: Rule) -> None:
    """Check a rule outside any organisation. `organisation_for` checks it within one."""
    if rule.operators_only and not actor.is_operator:
        raise NotPermitted("Only operators of this fleet may do this.")
    if rule.scope is not None and not actor.has(rule.scope):
        raise MissingScope(rule.scope)


def organisations_visible(actor: Actor) -> "QuerySet[Organisation]":
    organisations = Organisation.objects.exclude(state=Organisation.State.DELETED)
    return organisations if actor.organisation_id is None else organisations.filter(pk=actor.organisation_id)


def organisation_for(actor: Actor, slug: str, rule: Rule) -> Organisation:
    organisation = organisations_visible(actor).filter(slug=slug).first()
    if organisation is None:
        raise NotFound("organisation")
    _permit_within(actor, organisation, rule)
    return organisation


def organisation_own(actor: Actor, rule: Rule) -> Organisation | None:
    """Return the actor's organisation after checking the rule, for paths without one. Return None for operators."""
    if actor.organisation_id is None:
        permit(actor, rule)
        return None
    organisation = organisation_behind(actor)
    _permit_within(actor, organisation, rule)
    return organisation


def permit_anywhere(actor: Actor, rule: Rule) -> None:
    """Check the rule for a path without an organisation, as strictly as within the actor's own."""
    if rule.writes or rule.whole_organisation:
        organisation_own(actor, rule)
    else:
        permit(actor, rule)


def organisation_behind(actor: Actor) -> Organisation:
    """Return the actor's organisation. Raise InvalidToken if it was deleted after the token was checked."""
    organisation = organisations_visible(actor).first()
    if organisation is None:
        raise InvalidToken
    return organisation


def _permit_within(actor: Actor, organisation: Organisation, rule: Rule) -> None:
    permit(actor, rule)
    if rule.whole_organisation and actor.namespace_ids is not None:
        raise NotPermitted("This token is bound to single namespaces; this concerns the whole organisation.")
    if rule.writes:
        suspension_check(organisation, actor)


def suspension_check(organisation: Organisation, actor: Actor) -> None:
    """Raise OrganisationSuspended for anyone but operators.

    Called when a request arrives, and again by `locks.py` once the row is locked.
    """
    if organisation.is_suspended and not actor.is_operator:
        raise OrganisationSuspended


def namespaces_visible(actor: Actor, organisation: Organisation) -> "QuerySet[Namespace]":
    namespaces = Namespace.objects.filter(organisation=organisation, deleted_at=None).select_related("group")
    return namespaces if actor.namespace_ids is None else namespaces.filter(pk__in=actor.namespace_ids)


def namespace_for(actor: Actor, organisation: Organisation, slug: str) -> Namespace:
    """Return a namespace of an organisation from `organisation_for`, which has checked the rule."""
    namespace = namespaces_visible(actor, organisation).filter(slug=slug).first()
    if namespace is None:
        raise NotFound("namespace")
    namespace.organisation = organisation
    return namespace


def memberships_of(user: User) -> "QuerySet[Member]":
    """Return the memberships of a person, without those in deleted organisations."""
    memberships = Member.objects.filter(user=user).exclude(organisation__state=Organisation.State.DELETED)
    return memberships.select_related("organisation").order_by("organisation__name", "organisation__slug")


def namespaces_of(memberships: Iterable[Member]) -> "QuerySet[Namespace]":
    """Return the namespaces of all organisations in which the members' roles allow reading, in one query."""
    readable = [member.organisation_id for member in memberships if actor_for_member(member).has(Scope.POLICY_READ)]
    return Namespace.objects.filter(organisation__in=readable, deleted_at=None)


def namespace_slugs(ids: Collection[int]) -> dict[int, str]:
    """Return the slugs of the namespaces that a key is bound to, without deleted ones."""
    if not ids:
        return {}
    return dict(Namespace.objects.filter(pk__in=ids, deleted_at=None).values_list("pk", "slug"))


def members_of(organisation: Organisation) -> "QuerySet[Member]":
    return Member.objects.filter(organisation=organisation)


def member_for(organisation: Organisation, member_id: UUID) -> Member:
    member = members_of(organisation).filter(pk=member_id).select_related("user").first()
    if member is None:
        raise NotFound("member")
    member.organisation = organisation
    return member


def keys_of(organisation: Organisation) -> "QuerySet[ApiKey]":
    return ApiKey.objects.filter(organisation=organisation, revoked_at=None)


def key_for(organisation: Organisation, key_id: UUID) -> ApiKey:
    key = keys_of(organisation).filter(pk=key_id).first()
    if key is None:
        raise NotFound("key")
    key.organisation = organisation
    return key


def pins_of(namespace: Namespace) -> "QuerySet[Pin]":
    return Pin.objects.filter(namespace=namespace)


def pin_for(namespace: Namespace, pin_id: UUID) -> Pin:
    pin = pins_of(namespace).filter(pk=pin_id).first()
    if pin is None:
        raise NotFound("pin")
    pin.namespace = namespace
    return pin


def operation_for(actor: Actor, operation_id: UUID) -> Operation:
    visible = Operation.objects.filter(pk=operation_id)
    if not actor.is_operator:
        visible = visible.filter(organisation=actor.organisation_id)
    if actor.namespace_ids is not None:
        visible = visible.filter(namespace__in=actor.namespace_ids)
    operation = visible.first()
    if operation is None:
        raise NotFound("operation")
    permit(actor, READ)
    return operation


def operator_tokens() -> "QuerySet[OperatorToken]":
    return OperatorToken.objects.filter(revoked_at=None).select_related("user")


def operator_token_for(token_id: UUID) -> OperatorToken:
    token = operator_tokens().filter(pk=token_id).first()
    if token is None:
        raise NotFound("operator token")
    return token


def operator_behind(actor: Actor) -> User:
    """Return the owner of an operator's token."""
    return operator_token_for(UUID(actor.id)).user


def groups() -> "QuerySet[AgentGroup]":
    return AgentGroup.objects.all()


def group_for(slug: str) -> AgentGroup:
    group = groups().filter(slug=slug).first()
    if group is None:
        raise NotFound("agent group")
    return group


def audit_visible(actor: Actor) -> "QuerySet[AuditRecord]":
    """Return all records for operators, and otherwise those of the actor's organisation."""
    return (
        AuditRecord.objects.all()
        if actor.is_operator
        else AuditRecord.objects.filter(organisation_id=actor.organisation_id)
    )
