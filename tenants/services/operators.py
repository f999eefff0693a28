"""Take over an existing account for an operator, so that its previous owner keeps no access.

Anyone who manages an organisation's members can create an account for any address.
"""

from contextlib import suppress

from tenants.access import memberships_of
from tenants.actor import SYSTEM, Actor
from tenants.audit import audited
from tenants.errors import EmailTaken, NotFound
from tenants.locks import user_lock
from tenants.models import User
from tenants.services.members import member_remove
from tenants.services.people import email_check, password_set


def account_take_over(*, email: str, password: str, actor: Actor = SYSTEM) -> tuple[User, list[str]]:
    """Make the account an operator's, with this password, and return the organisations that it left.

    Its sessions and password reset links end.
    """
    with audited() as journal:
        user = User.objects.filter(email=email_check(email)).first()
        if user is None:
            raise NotFound("account")
        left_slugs = _memberships_end(actor, user)
        user = user_lock(user)
        if user.is_operator:
            raise EmailTaken(user.email)
        password_set(user=user, new=password)
        before = {"is_operator": False, "is_active": user.is_active}
        user.is_operator = user.is_active = True
        user.save(update_fields=["is_operator", "is_active"])
        after = {"is_operator": True, "is_active": True}
        journal.record(actor, "operator.take-over", user.email, before=before, after=after)
    return user, left_slugs


def _memberships_end(actor: Actor, user: User) -> list[str]:
    """End memberships in the order of organisation ids, in which organisations are locked."""
    left_slugs = []
    for member in memberships_of(user).order_by("organisation_id"):
        with suppress(NotFound):  # removed meanwhile
            member_remove(actor=actor, member=member)
            left_slugs.append(member.organisation.slug)
    return left_slugs
