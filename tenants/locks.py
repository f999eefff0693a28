"""Row locks until the end of the transaction, so that checked conditions stay true. `levels.py` locks policy levels.

One order prevents deadlocks: the fleet's level, the organisation (whose row serialises all writes inside it), what is
inside, agent groups by number, and last the head of the audit trail. The locks are NO KEY locks, which do not block
foreign keys: those are checked at commit, when the head is already locked, and would otherwise wait for a transaction
that waits for the head.
"""

from collections.abc import Collection, Iterable

from django.db import connection
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from tenants.access import suspension_check
from tenants.actor import Actor
from tenants.errors import NotFound
from tenants.models import AgentGroup, Member, Namespace, Organisation, User


def is_busy(error: Exception) -> bool:
    """Return whether the database gave up because another transaction locked the rows for too long."""
    return isinstance(error.__cause__, (LockNotAvailable, DeadlockDetected, QueryCanceled))


def lock_patience(*, seconds: int) -> None:
    """Set the lock timeout until commit, in place of the default of settings/django.py."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{seconds}s"])


def organisation_lock(organisation: Organisation, *, actor: Actor) -> Organisation:
    """Lock the organisation and return its current row.

    Raise NotFound if it was deleted, and OrganisationSuspended for its members. Bounds, limits and state may have
    changed during the wait, so use those of the result.
    """
    (locked,) = organisations_lock({organisation.pk}, actor=actor)
    return locked


def namespace_lock(namespace: Namespace) -> Namespace:
    """Lock a namespace, within its organisation's lock. A join could miss rows that change during the wait."""
    existing = Namespace.objects.select_for_update(no_key=True).filter(deleted_at=None)
    locked = existing.filter(pk=namespace.pk).first()
    if locked is None:
        raise NotFound("namespace")
    return locked


def organisations_lock(ids: Collection[int], *, actor: Actor) -> list[Organisation]:
    """Lock several organisations in order of their ids."""
    existing = Organisation.objects.exclude(state=Organisation.State.DELETED)
    organisations = list(existing.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
    if len(organisations) < len(ids):
        raise NotFound("organisation")
    for organisation in organisations:
        suspension_check(organisation, actor)
    return organisations


def namespaces_lock(ids: Collection[int]) -> list[Namespace]:
    """Lock several namespaces of locked organisations, in order of their ids."""
    existing = Namespace.objects.filter(deleted_at=None).select_related("group")
    namespaces = list(existing.select_for_update(of=("self",), no_key=True).filter(pk__in=ids).order_by("pk"))
    if len(namespaces) < len(ids):
        raise NotFound("namespace")
    return namespaces


def member_lock(member: Member) -> Member:
    locked = Member.objects.select_for_update(no_key=True).filter(pk=member.pk).first()
    if locked is None:
        raise NotFound("member")
    return locked


def user_lock(user: User) -> User:
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def groups_lock(group_ids: Iterable[int]) -> None:
    """Lock groups exclusively, to check the reserved shares of their pools."""
    list(AgentGroup.objects.select_for_update(no_key=True).filter(pk__in=sorted(group_ids)).order_by("pk"))


def groups_keep(group_ids: Iterable[int]) -> None:
    """Prevent the groups' deletion until commit. Many transactions may share this lock."""
    distinct_ids = set(group_ids)
    with connection.cursor() as cursor:  # Django does not support this weak lock
        ids = sorted(distinct_ids)
        cursor.execute("SELECT id FROM tenants_agentgroup WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE", [ids])
        if len(cursor.fetchall()) < len(distinct_ids):
            raise NotFound("agent group")
