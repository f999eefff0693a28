"""The current state, as far as a document can describe it, read with a constant number of queries."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenants.access import groups, organisations_visible
from tenants.actor import Actor
from tenants.bounds import BUILT_IN_BOUNDS, bounds_of
from tenants.models import Namespace, PolicyLevel
from tenants.models.organisations import DEFAULT
from tenants.policy import Below, Values


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """A namespace. `id` None: it does not exist yet."""

    slug: str
    id: int | None = None
    name: str = ""
    group: str = DEFAULT
    revision: int = 0
    policy_revision: int = 0
    policy: Values = field(default_factory=dict)
    owner: str = ""


@dataclass(frozen=True, slots=True)
class OrganisationState:
    """An organisation. `bounds` are the effective ones; `limits` only those that were set."""

    slug: str
    id: int | None = None
    name: str = ""
    state: str = "active"
    revision: int = 0
    bounds: Values = field(default_factory=lambda: BUILT_IN_BOUNDS.model_dump(exclude_none=True))
    bounds_revision: int = 0
    limits: Values = field(default_factory=dict)
    limits_revision: int = 0
    policy_revision: int = 0
    policy: Values = field(default_factory=dict)
    owner: str = ""
    namespaces: Mapping[str, NamespaceState] = field(default_factory=lambda: {DEFAULT: NamespaceState(DEFAULT)})

    def below(self, namespace: NamespaceState, group_id: int = 0) -> Below:
        """Return the namespace in the form that the policy rules use."""
        return Below(
            self.id or 0, self.slug, namespace.id or 0, namespace.slug, group_id, self.policy, namespace.policy
        )


@dataclass(frozen=True, slots=True)
class State:
    """The fleet's level, the requested organisations that the actor sees, and all agent groups with their ids."""

    policy_revision: int = 0
    policy: Values = field(default_factory=dict)
    organisations: Mapping[str, OrganisationState] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)


def state_read(actor: Actor, slugs: Collection[str] | None) -> State:
    """Read the state of the named organisations, or of all that the actor sees if `slugs` is None."""
    # Reading must not create the row.
    fleet = PolicyLevel.objects.filter(kind=PolicyLevel.Kind.FLEET).first() or PolicyLevel()
    return State(fleet.revision, fleet.policy, _organisations(actor, slugs), dict(groups().values_list("slug", "pk")))


def _organisations(actor: Actor, slugs: Collection[str] | None) -> dict[str, OrganisationState]:
    visible = organisations_visible(actor).select_related("policy_level").order_by("slug")
    organisations = list(visible if slugs is None else visible.filter(slug__in=slugs))
    namespaces = _namespaces([organisation.pk for organisation in organisations])
    return {
        organisation.slug: OrganisationState(
            slug=organisation.slug,
            id=organisation.pk,
            name=organisation.name,
            state=organisation.state,
            revision=organisation.revision,
            bounds=bounds_of(organisation.bounds, organisation.bounds_revision).model_dump(exclude_none=True),
            bounds_revision=organisation.bounds_revision,
            limits=organisation.limits,
            limits_revision=organisation.limits_revision,
            policy_revision=organisation.policy_level.revision,
            policy=organisation.policy_level.policy,
            owner=organisation.owner,
            namespaces=namespaces.get(organisation.pk, {}),
        )
        for organisation in organisations
    }


def _namespaces(organisation_ids: Collection[int]) -> dict[int, dict[str, NamespaceState]]:
    existing = Namespace.objects.filter(organisation__in=organisation_ids, deleted_at=None).order_by("slug")
    levels = ("policy_level__revision", "policy_level__policy")
    columns = ("slug", "pk", "name", "group__slug", "revision", *levels, "owner")
    namespaces: dict[int, dict[str, NamespaceState]] = {}
    rows: Any = existing.values_list("organisation_id", *columns)
    for organisation_id, slug, *fields in rows.iterator(chunk_size=5000):
        namespaces.setdefault(organisation_id, {})[slug] = NamespaceState(slug, *fields)
    return namespaces
