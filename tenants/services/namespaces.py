"""Namespaces: created several at once, renamed and moved between groups, deleted in two steps."""

from collections.abc import Sequence
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.actor import Actor
from tenants.audit import Journal, audited
from tenants.errors import Conflict, FieldProblem, LimitReached, Taken
from tenants.fields import name_check, slug_check
from tenants.levels import Place, level_of, levels_above
from tenants.limits import limits_of
from tenants.models import AgentGroup, Namespace, NamespaceKey, Organisation, PolicyLevel
from tenants.models.organisations import DEFAULT
from tenants.policy import effective_values, models_named
from tenants.revisions import Expected, revision_check
from tenants.services.namespace_keys import key_new, keys_erase
from tenants.services.operations import purge_begin
from tenants.services.shares import groups_check
from tenants.shares import promised


def namespace_create(
    *, actor: Actor, organisation: Organisation, slug: str, name: str = "", group: AgentGroup | None = None
) -> Namespace:
    return namespaces_create(actor=actor, organisation=organisation, wanted=[(slug, name, group)])[0]


def namespaces_create(
    *, actor: Actor, organisation: Organisation, wanted: Sequence[tuple[str, str, AgentGroup | None]]
) -> list[Namespace]:
    """Several at once, with a constant number of queries; each with its first key and an empty policy."""
    checked = [(slug_check(slug), name_check(name, may_be_empty=True), group) for slug, name, group in wanted]
    with audited() as journal:
        Organisation.objects.select_for_update().get(pk=organisation.pk)  # so that two at once cannot pass the limit
        _room_check(organisation, len(checked))
        fallback = default_group() if any(group is None for _, _, group in checked) else None
        made = [
            Namespace(organisation=organisation, slug=slug, name=name, group=group or fallback)
            for slug, name, group in checked
        ]
        try:
            with transaction.atomic():
                Namespace.objects.bulk_create(made)
        except IntegrityError:
            raise Taken("slug", _first_taken(organisation, made), "namespace of this organisation") from None
        NamespaceKey.objects.bulk_create(key_new(namespace, namespace.epoch) for namespace in made)
        PolicyLevel.objects.bulk_create(
            PolicyLevel(kind=PolicyLevel.Kind.NAMESPACE, namespace=namespace) for namespace in made
        )
        for namespace in made:
            journal.record(
                actor,
                "namespace.create",
                target(organisation, namespace),
                organisation=organisation,
                after=described(namespace),
            )
        if inherits_promises(organisation):
            groups_check({namespace.group_id for namespace in made}, actor=actor)
    return made


def namespace_update(
    *,
    actor: Actor,
    namespace: Namespace,
    expected: Expected,
    name: str | None = None,
    group: AgentGroup | None = None,
) -> Namespace:
    with audited() as journal:
        found = Namespace.objects.select_for_update(of=("self",)).select_related("group").get(pk=namespace.pk)
        revision_check(found.revision, expected)
        before = described(found)
        found.name = found.name if name is None else name_check(name, may_be_empty=True)
        found.group = group or found.group
        if described(found) == before:
            return found
        found.revision += 1
        found.save(update_fields=["name", "group", "revision"])
        organisation = namespace.organisation
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


def namespace_delete(*, actor: Actor, namespace: Namespace, expected: Expected) -> None:
    """Stops at once and is purged; the row goes once every agent has shown its receipt."""
    if namespace.slug == DEFAULT:
        raise Conflict([FieldProblem("namespace", "every organisation keeps its namespace default; purge it instead")])
    with audited() as journal:
        found = Namespace.objects.select_for_update().get(pk=namespace.pk)
        revision_check(found.revision, expected)
        _retire(journal, actor, namespace.organisation, found, now=timezone.now())


def _retire(journal: Journal, actor: Actor, organisation: Organisation, namespace: Namespace, *, now: datetime) -> None:
    namespace.deleted_at = now
    namespace.save(update_fields=["deleted_at"])
    namespace.pins.all().delete()
    keys_erase(namespace, now=now)
    purge_begin(actor=actor, organisation=organisation, namespace=namespace, now=now)
    journal.record(
        actor,
        "namespace.delete",
        target(organisation, namespace),
        organisation=organisation,
        before=described(namespace),
    )


def inherits_promises(organisation: Organisation) -> bool:
    """Whether a namespace that says nothing is promised something here, in general or for one model."""
    place = Place(organisation)
    chain = [level.policy for level in (*levels_above(place), level_of(place))]
    return any(promised(effective_values(chain, model)) > 0 for model in (None, *models_named(chain)))


def default_group() -> AgentGroup:
    group, _ = AgentGroup.objects.get_or_create(slug=DEFAULT, defaults={"name": "Default"})
    return group


def described(namespace: Namespace) -> dict[str, object]:
    return {"slug": namespace.slug, "name": namespace.name, "group": namespace.group.slug}


def target(organisation: Organisation, namespace: Namespace) -> str:
    return f"{organisation.slug}/{namespace.slug}"


def _room_check(organisation: Organisation, more: int) -> None:
    limit = limits_of(organisation.limits).max_namespaces
    if organisation.namespaces.filter(deleted_at=None).count() + more > limit:
        raise LimitReached("max_namespaces", limit)


def _first_taken(organisation: Organisation, wanted: Sequence[Namespace]) -> str:
    slugs = [one.slug for one in wanted]
    living = organisation.namespaces.filter(deleted_at=None, slug__in=slugs).values_list("slug", flat=True)
    return living.first() or slugs[0]
