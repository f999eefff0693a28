"""An account that stands where an operator's is to be: taken over, so that nothing of whoever made it is left in it.

Anybody who manages an organisation's members can bring an account of any address into being.
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
    """Make the account an operator's, with this password; names the organisations it belonged to, and does not now.

    Its sessions and links to reset its password end.
    """
    with audited() as journal:
        user = User.objects.filter(email=email_check(email)).first()
        if user is None:
            raise NotFound("account")
        left = _memberships_end(actor, user)
        user = user_lock(user)
        if user.is_operator:
            raise EmailTaken(user.email)
        password_set(user=user, new=password)
        before = {"is_operator": False, "is_active": user.is_active}
        user.is_operator = user.is_active = True
        user.save(update_fields=["is_operator", "is_active"])
        after = {"is_operator": True, "is_active": True}
        journal.record(actor, "operator.take-over", user.email, before=before, after=after)
    return user, left


def _memberships_end(actor: Actor, user: User) -> list[str]:
    """By number of the organisation, the order in which they are locked."""
    left = []
    for member in memberships_of(user).order_by("organisation_id"):
        with suppress(NotFound):  # gone meanwhile
            member_remove(actor=actor, member=member)
            left.append(member.organisation.slug)
    return left
