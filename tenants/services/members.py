"""Members: invited with a one-time link, given roles, removed. Also links that reset a password."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.actor import SYSTEM, Actor, ActorKind
from tenants.audit import audited
from tenants.crypto import secret_hash
from tenants.errors import (
    Conflict,
    EmailTaken,
    FieldProblem,
    InvalidFields,
    LimitReached,
    LinkSpent,
    NotFound,
    NotPermitted,
    SignInRefused,
)
from tenants.fields import all_checked
from tenants.limits import limits_of
from tenants.locks import member_lock, organisation_lock, user_lock
from tenants.models import Member, OneTimeLink, Organisation, User
from tenants.services.people import attempt_begin, email_check, owner_of, password_check, password_set, user_create

INVITATION_LASTS = timedelta(days=7)
RESET_LASTS = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class NewLink:
    """A new link. Its full secret exists only here."""

    purpose: str
    secret: str = field(repr=False)
    expires_at: datetime

    @property
    def path(self) -> str:
        return f"/{self.purpose}/{self.secret}"


def member_invite(*, actor: Actor, organisation: Organisation, email: str, role: str) -> tuple[Member, NewLink]:
    email, _ = all_checked(lambda: email_check(email), lambda: _role_check(role))
    with audited() as journal:
        limit = limits_of(organisation_lock(organisation, actor=actor).limits).max_members
        if organisation.members.count() >= limit:
            raise LimitReached("max_members", limit)
        member = Member(organisation=organisation, email=email, role=role)
        try:
            with transaction.atomic():
                member.save()
        except IntegrityError:
            raise Conflict([FieldProblem("email", f"{email!r} is a member of this organisation already")]) from None
        link = _link_new(OneTimeLink.Purpose.INVITATION, member=member)
        journal.record(
            actor,
            "member.invite",
            _target(member),
            organisation=organisation,
            after={"email": email, "role": role},
        )
    return member, link


def member_update(*, actor: Actor, member: Member, role: str) -> Member:
    _role_check(role)
    with audited() as journal:
        locked = _locked(actor, member, leaves_admin=role == Member.Role.ADMIN)
        before, locked.role = locked.role, role
        if before != role:
            locked.save(update_fields=["role"])
            journal.record(
                actor,
                "member.update",
                _target(member),
                organisation=member.organisation,
                before={"role": before},
                after={"role": role},
            )
    return locked


def member_remove(*, actor: Actor, member: Member) -> None:
    with audited() as journal:
        locked = _locked(actor, member, leaves_admin=False)
        before = {"email": locked.email, "role": locked.role}
        journal.record(actor, "member.remove", _target(member), organisation=member.organisation, before=before)
        locked.delete()


def member_link(*, actor: Actor, member: Member) -> NewLink:
    """Return a new link that replaces earlier ones: an invitation or, for a member who has joined, a password reset."""
    with audited() as journal:
        organisation_lock(member.organisation, actor=actor)
        locked = member_lock(member)
        if locked.user is None:
            link = _link_new(OneTimeLink.Purpose.INVITATION, member=locked)
            journal.record(actor, "member.invite-again", _target(member), organisation=member.organisation)
            return link
        if not actor.is_operator:
            raise NotPermitted("Only operators of this fleet may issue links that reset a password.")
        return reset_link(actor=actor, user=locked.user, organisation=member.organisation)


def reset_link(*, actor: Actor, user: User, organisation: Organisation | None = None) -> NewLink:
    with audited() as journal:
        user_lock(user)  # so that of two simultaneous calls only one link stays valid
        link = _link_new(OneTimeLink.Purpose.RESET, user=user)
        journal.record(actor, "password.reset-link", user.email, organisation=organisation)
    return link


def link_open(purpose: str, secret: str, *, now: datetime) -> OneTimeLink:
    """Return the link if it is valid. Raise LinkSpent."""
    open_links = OneTimeLink.objects.filter(purpose=purpose, used_at=None, expires_at__gt=now)
    link = open_links.select_related("member__organisation", "user").filter(hash=secret_hash(secret)).first()
    if link is None or (link.member is not None and link.member.organisation.state == Organisation.State.DELETED):
        raise LinkSpent
    return link


def invitation_accept(
    *,
    secret: str,
    password: str,
    is_new_password: bool = True,
    address: str,
    request_id: str = "",
    now: datetime,
) -> User:
    """Join the invited member's account, existing or new, to the organisation, and spend the link.

    Refusals do not reveal to callers without the password whether an account exists: they are the same, as frequent and
    as slow. `is_new_password`: the invited person wants to choose a password if they have no account.
    """
    email = _invited_address(link_open(OneTimeLink.Purpose.INVITATION, secret, now=now))
    if is_new_password:
        password_check(password, User(email=email))
    # Outside the transaction, so that a refused attempt still counts.
    attempt = attempt_begin(email=email, address=address, now=now)
    user = owner_of(email, password)
    if user is None and not is_new_password:
        raise SignInRefused
    with audited() as journal:
        link = link_open(OneTimeLink.Purpose.INVITATION, secret, now=now)
        member = _invited(link)
        user = user or _account_new(email, password)
        _spend(link, now=now)
        member.user, member.joined_at = user, now
        member.save(update_fields=["user", "joined_at"])
        actor = _visitor(user, address, request_id)
        journal.record(actor, "member.join", _target(member), organisation=member.organisation)
        attempt.delete()
    return user


def _invited_address(link: OneTimeLink) -> str:
    if link.member is None:
        raise LinkSpent
    return link.member.email


def _account_new(email: str, password: str) -> User:
    try:
        return user_create(email=email, password=password)
    except EmailTaken:
        raise SignInRefused from None


def _invited(link: OneTimeLink) -> Member:
    """Return the member, locked against simultaneous removal of the member or the organisation."""
    if link.member is None:
        raise LinkSpent
    try:
        # Invited members may join a suspended organisation too: that changes none of its data.
        organisation = organisation_lock(link.member.organisation, actor=SYSTEM)
        member = member_lock(link.member)
    except NotFound:
        raise LinkSpent from None
    member.organisation = organisation
    return member


def reset_accept(*, secret: str, password: str, address: str, request_id: str = "", now: datetime) -> User:
    """Set the password. Every open session of this person ends."""
    with audited() as journal:
        link = link_open(OneTimeLink.Purpose.RESET, secret, now=now)
        user = None if link.user is None else user_lock(link.user)
        if user is None or not user.is_active:
            raise LinkSpent
        _spend(link, now=now)
        password_set(user=user, new=password)
        journal.record(_visitor(user, address, request_id), "password.reset", user.email)
    return user


def _spend(link: OneTimeLink, *, now: datetime) -> None:
    """Mark the link as used. Of two simultaneous users, only one succeeds."""
    if not OneTimeLink.objects.filter(pk=link.pk, used_at=None).update(used_at=now):
        raise LinkSpent


def _link_new(purpose: str, *, member: Member | None = None, user: User | None = None) -> NewLink:
    now = timezone.now()
    OneTimeLink.objects.filter(purpose=purpose, member=member, user=user, used_at=None).update(used_at=now)
    secret = secrets.token_urlsafe(32)
    lifetime = INVITATION_LASTS if purpose == OneTimeLink.Purpose.INVITATION else RESET_LASTS
    link = OneTimeLink.objects.create(
        purpose=purpose, member=member, user=user, hash=secret_hash(secret), created_at=now, expires_at=now + lifetime
    )
    return NewLink(purpose, secret, link.expires_at)


def _locked(actor: Actor, member: Member, *, leaves_admin: bool) -> Member:
    """Lock the member. Raise Conflict if an organisation's own people would remove its last admin who has joined."""
    organisation_lock(member.organisation, actor=actor)
    locked = member_lock(member)
    is_admin = locked.role == Member.Role.ADMIN and locked.has_joined
    if is_admin and not leaves_admin and not actor.is_operator:
        other_admins = Member.objects.filter(organisation=member.organisation_id, role=Member.Role.ADMIN).exclude(
            pk=locked.pk
        )
        if not other_admins.filter(joined_at__isnull=False).exists():
            problem = "this is the organisation's last admin; make somebody else one first"
            raise Conflict([FieldProblem("role", problem)])
    return locked


def _role_check(role: str) -> None:
    if role not in Member.Role.values:
        raise InvalidFields([FieldProblem("role", f"{role[:80]!r} is none of {', '.join(Member.Role.values)}")])


def _visitor(user: User, address: str, request_id: str) -> Actor:
    return Actor(ActorKind.VISITOR, str(user.pk), user.email, frozenset(), address=address, request_id=request_id)


def _target(member: Member) -> str:
    return f"{member.organisation.slug} member {member.email}"
