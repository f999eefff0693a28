"""A member's overview: their organisations, and the effective policies of their namespaces. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, Window
from django.db.models.functions import RowNumber

from tenants.access import memberships_of, namespaces_of
from tenants.levels import FLEET, level_of
from tenants.models import Member, Namespace, Organisation, PolicyLevel, User
from tenants.policy import Effective, effective, models_named

NAMESPACES_AT_MOST = 20  # of each organisation, with a form each; members of larger ones search


@dataclass(frozen=True, slots=True)
class NamespaceHome:
    """One namespace and its effective policy. `models` lists models with other values."""

    namespace: Namespace
    effective: Effective
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Home:
    """An organisation as a member sees it: the first namespaces by slug, and how many there are."""

    member: Member
    organisation: Organisation
    namespaces: tuple[NamespaceHome, ...]
    total: int


def homes_of(user: User) -> list[Home]:
    """Return all organisations of this person, in three queries."""
    memberships = list(memberships_of(user))
    if not memberships:
        return []
    fleet = level_of(FLEET)
    rows: dict[int, list[Namespace]] = {member.organisation_id: [] for member in memberships}
    for namespace in _first_namespaces(memberships):
        rows[namespace.organisation_id].append(namespace)
    return [_home(member, rows[member.organisation_id], fleet) for member in memberships]


def inheriting(field: str) -> tuple[int, int]:
    """Return how many namespaces inherit a field from the fleet, and how many there are."""
    own = Q(policy_level__policy__has_key=field) | Q(organisation__policy_level__policy__has_key=field)
    existing = Namespace.objects.filter(deleted_at=None).exclude(organisation__state=Organisation.State.DELETED)
    counts = existing.aggregate(all=Count("pk"), own=Count("pk", filter=own))
    return counts["all"] - counts["own"], counts["all"]


def _first_namespaces(memberships: Sequence[Member]) -> Sequence[Namespace]:
    by = "organisation_id"
    ranked = namespaces_of(memberships).annotate(
        place=Window(RowNumber(), partition_by=by, order_by="slug"), total=Window(Count("pk"), partition_by=by)
    )
    selected = ranked.filter(place__lte=NAMESPACES_AT_MOST).order_by("slug")
    return list(selected.select_related("policy_level", "organisation__policy_level"))


def _home(member: Member, rows: Sequence[Namespace], fleet: PolicyLevel) -> Home:
    total = rows[0].total if rows else 0  # type: ignore[attr-defined]
    return Home(member, member.organisation, tuple(namespace_home(row, fleet) for row in rows), total)


def namespace_home(namespace: Namespace, fleet: PolicyLevel) -> NamespaceHome:
    chain = (fleet.policy, namespace.organisation.policy_level.policy, namespace.policy_level.policy)
    return NamespaceHome(namespace, effective(chain), tuple(models_named(chain)))
