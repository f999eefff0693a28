"""Rows held until the transaction ends, so that what was judged of them stays true. Levels of policy are in levels.py.

One order, so that nobody waits in a circle: the fleet's level, the organisation (whose row puts in line all that is
written inside it), what is inside, agent groups by number, and last of all the head of the audit trail. The locks leave
foreign keys alone (NO KEY): those are checked at commit, when the head is held already, and would else wait for
somebody who waits for the head.
"""

from collections.abc import Collection, Iterable

from django.db import connection
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from tenants.access import suspension_check
from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.models import AgentGroup, Member, Namespace, Organisation, User


def is_busy(error: Exception) -> bool:
    """Whether the database is there, and gave something up because others held what it needed for too long."""
    return isinstance(error.__cause__, (LockNotAvailable, DeadlockDetected, QueryCanceled))


def lock_patience(*, seconds: int) -> None:
    """Until commit, wait that long for each lock instead of as long as is usual, as settings/django.py says."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{seconds}s"])


def organisation_lock(organisation: Organisation, *, actor: Actor) -> Organisation:
    """As it is now; deleted meanwhile is not there, and suspended meanwhile is closed to its own people.

    What was read before may have changed while this waited: bounds, limits and state are those of the answer.
    """
    (found,) = organisations_lock({organisation.pk}, actor=actor)
    return found


def namespace_lock(namespace: Namespace) -> Namespace:
    """Within its organisation's lock. Without joins: of rows that changed while it waited, a join may find none."""
    living = Namespace.objects.select_for_update(no_key=True).filter(deleted_at=None)
    found = living.filter(pk=namespace.pk).first()
    if found is None:
        raise NotFound("namespace")
    return found


def organisations_lock(ids: Collection[int], *, actor: Actor) -> list[Organisation]:
    """Several, by number."""
    living = Organisation.objects.exclude(state=Organisation.State.DELETED)
    found = list(living.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
    if len(found) < len(ids):
        raise NotFound("organisation")
    for one in found:
        suspension_check(one, actor)
    return found


def namespaces_lock(ids: Collection[int]) -> list[Namespace]:
    """Several, by number, of organisations that are locked already."""
    living = Namespace.objects.filter(deleted_at=None).select_related("group")
    found = list(living.select_for_update(of=("self",), no_key=True).filter(pk__in=ids).order_by("pk"))
    if len(found) < len(ids):
        raise NotFound("namespace")
    return found


def member_lock(member: Member) -> Member:
    found = Member.objects.select_for_update(no_key=True).filter(pk=member.pk).first()
    if found is None:
        raise NotFound("member")
    return found


def user_lock(user: User) -> User:
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def groups_lock(group_ids: Iterable[int]) -> None:
    """For judging what is promised of their agents: one at a time."""
    list(AgentGroup.objects.select_for_update(no_key=True).filter(pk__in=sorted(group_ids)).order_by("pk"))


def groups_keep(group_ids: Iterable[int]) -> None:
    """They stay until something new in them is committed; many may be doing this at once."""
    wanted = set(group_ids)
    with connection.cursor() as cursor:  # Django itself knows no lock this light
        ids = sorted(wanted)
        cursor.execute("SELECT id FROM tenants_agentgroup WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE", [ids])
        if len(cursor.fetchall()) < len(wanted):
            raise NotFound("agent group")
