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
    return namespaces_add(actor=actor, wanted=[NewNamespace(organisation, *one) for one in wanted])


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
    checked = [one.checked() for one in wanted]
    with audited() as journal:
        held = levels_hold((one.organisation for one in checked), actor=actor)
        _room_check([organisation for organisation, _ in held.values()], checked)
        fallback = default_group() if any(one.group is None for one in checked) else None
        made = [
            Namespace(
                organisation=one.organisation,
                slug=one.slug,
                name=one.name,
                group=one.group or fallback,
                owner=one.owner,
            )
            for one in checked
        ]
        groups_keep(namespace.group_id for namespace in made)
        try:
            with transaction.atomic():
                Namespace.objects.bulk_create(made, batch_size=BATCH)
        except IntegrityError:
            raise Taken("slug", _first_taken(made), "namespace of this organisation") from None
        NamespaceKey.objects.bulk_create((key_new(one, one.epoch) for one in made), batch_size=BATCH)
        PolicyLevel.objects.bulk_create(
            (PolicyLevel(kind=PolicyLevel.Kind.NAMESPACE, namespace=one) for one in made), batch_size=BATCH
        )
        for one in made:
            journal.record(
                actor,
                "namespace.create",
                target(one.organisation, one),
                organisation=one.organisation,
                after=described(one),
            )
        promising = {pk for pk, (_, above) in held.items() if is_promised_something([level.policy for level in above])}
        groups_check({one.group_id for one in made if one.organisation_id in promising}, actor=actor)
    return made


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
        found = namespace_lock(namespace)
        revision_check(found.revision, expected)
        before = described(found)
        found.name = found.name if name is None else name_check(name, may_be_empty=True)
        found.group = group or found.group
        found.owner = found.owner if owner is None else owner
        if described(found) == before:
            return found
        groups_keep([found.group_id])
        found.revision += 1
        found.save(update_fields=["name", "group", "owner", "revision"])
        journal.record(
            actor,
            "namespace.update",
            target(organisation, found),
            organisation=organisation,
            before=before,
            after=described(found),
        )
        if described(found)["group"] != before["group"]:
            groups_check({found.group_id}, actor=actor)
    return found


def namespace_delete(*, actor: Actor, namespace: Namespace, expected: Expected) -> Operation:
    """Delete a namespace. It is purged at once; its row goes when every agent has sent its receipt."""
    if namespace.slug == DEFAULT:
        raise Conflict([FieldProblem("namespace", "every organisation keeps its namespace default; purge it instead")])
    with audited() as journal:
        organisation_lock(namespace.organisation, actor=actor)
        found = namespace_lock(namespace)
        revision_check(found.revision, expected)
        return _retire(journal, actor, namespace.organisation, found, now=timezone.now())


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
    found: dict[str, object] = {"slug": namespace.slug, "name": namespace.name, "group": namespace.group.slug}
    return {**found, "owner": namespace.owner} if namespace.owner else found


def target(organisation: Organisation, namespace: Namespace) -> str:
    return f"{organisation.slug}/{namespace.slug}"


def _room_check(organisations: Sequence[Organisation], wanted: Sequence[NewNamespace]) -> None:
    more = Counter(one.organisation.pk for one in wanted)
    living = Namespace.objects.filter(organisation__in=organisations, deleted_at=None)
    there = dict(living.values_list("organisation").annotate(Count("pk")))
    for one in organisations:
        limit = limits_of(one.limits).max_namespaces
        if there.get(one.pk, 0) + more[one.pk] > limit:
            raise LimitReached("max_namespaces", limit)


def _first_taken(wanted: Sequence[Namespace]) -> str:
    organisations, slugs = {one.organisation_id for one in wanted}, {one.slug for one in wanted}
    living = Namespace.objects.filter(organisation__in=organisations, deleted_at=None, slug__in=slugs)
    taken = set(living.values_list("organisation_id", "slug"))
    return next((one.slug for one in wanted if (one.organisation_id, one.slug) in taken), wanted[0].slug)
