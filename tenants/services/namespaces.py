"""Namespaces: created several at once, renamed and moved between groups, deleted in two steps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Count
from django.utils import timezone

from tenants.actor import Actor
from tenants.audit import Journal, audited
from tenants.errors import Conflict, FieldProblem, LimitReached, Taken
from tenants.fields import name_check, slug_check
from tenants.levels import levels_hold
from tenants.limits import limits_of
from tenants.locks import groups_keep, namespace_lock, organisation_lock
from tenants.models import AgentGroup, Namespace, NamespaceKey, Operation, Organisation, PolicyLevel
from tenants.models.organisations import DEFAULT
from tenants.revisions import Expected, revision_check
from tenants.services.namespace_keys import key_new, keys_erase
from tenants.services.operations import purge_begin
from tenants.services.shares import groups_check
from tenants.shares import is_promised_something

BATCH = 500


def namespace_create(
    *, actor: Actor, organisation: Organisation, slug: str, name: str = "", group: AgentGroup | None = None
) -> Namespace:
    return namespaces_create(actor=actor, organisation=organisation, wanted=[(slug, name, group)])[0]


def namespaces_create(
    *, actor: Actor, organisation: Organisation, wanted: Sequence[tuple[str, str, AgentGroup | None]]
) -> list[Namespace]:
    return namespaces_add(actor=actor, wanted=[NewNamespace(organisation, *fields) for fields in wanted])


@dataclass(frozen=True, slots=True)
class NewNamespace:
    """A namespace to create. Without a group it belongs to the default one."""

    organisation: Organisation
    slug: str
    name: str = ""
    group: AgentGroup | None = None
    owner: str = ""

    def checked(self) -> "NewNamespace":
        return replace(self, slug=slug_check(self.slug), name=name_check(self.name, may_be_empty=True))


def namespaces_add(*, actor: Actor, wanted: Sequence[NewNamespace]) -> list[Namespace]:
    """Create namespaces, each with its first key and an empty policy, with a constant number of queries."""
    checked = [new_namespace.checked() for new_namespace in wanted]
    with audited() as journal:
        levels_by_organisation = levels_hold((new_namespace.organisation for new_namespace in checked), actor=actor)
        _room_check([organisation for organisation, _ in levels_by_organisation.values()], checked)
        fallback = default_group() if any(new_namespace.group is None for new_namespace in checked) else None
        created = [
            Namespace(
                organisation=new_namespace.organisation,
                slug=new_namespace.slug,
                name=new_namespace.name,
                group=new_namespace.group or fallback,
                owner=new_namespace.owner,
            )
            for new_namespace in checked
        ]
        groups_keep(namespace.group_id for namespace in created)
        try:
            with transaction.atomic():
                Namespace.objects.bulk_create(created, batch_size=BATCH)
        except IntegrityError:
            raise Taken("slug", _first_taken(created), "namespace of this organisation") from None
        NamespaceKey.objects.bulk_create(
            (key_new(namespace, namespace.epoch) for namespace in created), batch_size=BATCH
        )
        PolicyLevel.objects.bulk_create(
            (PolicyLevel(kind=PolicyLevel.Kind.NAMESPACE, namespace=namespace) for namespace in created),
            batch_size=BATCH,
        )
        for namespace in created:
            journal.record(
                actor,
                "namespace.create",
                target(namespace.organisation, namespace),
                organisation=namespace.organisation,
                after=described(namespace),
            )
        promising = {
            pk
            for pk, (_, above) in levels_by_organisation.items()
            if is_promised_something([level.policy for level in above])
        }
        groups_check(
            {namespace.group_id for namespace in created if namespace.organisation_id in promising}, actor=actor
        )
    return created


def namespace_update(
    *,
    actor: Actor,
    namespace: Namespace,
    expected: Expected,
    name: str | None = None,
    group: AgentGroup | None = None,
    owner: str | None = None,
) -> Namespace:
    organisation = namespace.organisation
    with audited() as journal:
        levels_hold([organisation], actor=actor)
        locked = namespace_lock(namespace)
        revision_check(locked.revision, expected)
        before = described(locked)
        locked.name = locked.name if name is None else name_check(name, may_be_empty=True)
        locked.group = group or locked.group
        locked.owner = locked.owner if owner is None else owner
        if described(locked) == before:
            return locked
        groups_keep([locked.group_id])
        locked.revision += 1
        locked.save(update_fields=["name", "group", "owner", "revision"])
        journal.record(
            actor,
            "namespace.update",
            target(organisation, locked),
            organisation=organisation,
            before=before,
            after=described(locked),
        )
        if described(locked)["group"] != before["group"]:
            groups_check({locked.group_id}, actor=actor)
    return locked


def namespace_delete(*, actor: Actor, namespace: Namespace, expected: Expected) -> Operation:
    """Delete a namespace. It is purged at once; its row goes when every agent has sent its receipt."""
    if namespace.slug == DEFAULT:
        raise Conflict([FieldProblem("namespace", "every organisation keeps its namespace default; purge it instead")])
    with audited() as journal:
        organisation_lock(namespace.organisation, actor=actor)
        locked = namespace_lock(namespace)
        revision_check(locked.revision, expected)
        return _retire(journal, actor, namespace.organisation, locked, now=timezone.now())


def _retire(
    journal: Journal, actor: Actor, organisation: Organisation, namespace: Namespace, *, now: datetime
) -> Operation:
    namespace.deleted_at = now
    namespace.save(update_fields=["deleted_at"])
    namespace.pins.all().delete()
    keys_erase([namespace], now=now)
    group_ids = {namespace.group_id}
    operation = purge_begin(actor=actor, organisation=organisation, namespace=namespace, now=now, group_ids=group_ids)
    journal.record(
        actor,
        "namespace.delete",
        target(organisation, namespace),
        organisation=organisation,
        before=described(namespace),
    )
    return operation


def default_group() -> AgentGroup:
    group, _ = AgentGroup.objects.get_or_create(slug=DEFAULT, defaults={"name": "Default"})
    return group


def described(namespace: Namespace) -> dict[str, object]:
    document: dict[str, object] = {"slug": namespace.slug, "name": namespace.name, "group": namespace.group.slug}
    return {**document, "owner": namespace.owner} if namespace.owner else document


def target(organisation: Organisation, namespace: Namespace) -> str:
    return f"{organisation.slug}/{namespace.slug}"


def _room_check(organisations: Sequence[Organisation], new_namespaces: Sequence[NewNamespace]) -> None:
    added = Counter(new_namespace.organisation.pk for new_namespace in new_namespaces)
    namespaces = Namespace.objects.filter(organisation__in=organisations, deleted_at=None)
    counts = dict(namespaces.values_list("organisation").annotate(Count("pk")))
    for organisation in organisations:
        limit = limits_of(organisation.limits).max_namespaces
        if counts.get(organisation.pk, 0) + added[organisation.pk] > limit:
            raise LimitReached("max_namespaces", limit)


def _first_taken(namespaces: Sequence[Namespace]) -> str:
    organisations, slugs = (
        {namespace.organisation_id for namespace in namespaces},
        {namespace.slug for namespace in namespaces},
    )
    existing = Namespace.objects.filter(organisation__in=organisations, deleted_at=None, slug__in=slugs)
    taken_slugs = set(existing.values_list("organisation_id", "slug"))
    return next(
        (namespace.slug for namespace in namespaces if (namespace.organisation_id, namespace.slug) in taken_slugs),
        namespaces[0].slug,
    )
