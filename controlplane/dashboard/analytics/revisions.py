"""The policy revisions of any level that changed something in force in an organisation."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.urls import reverse

from controlplane.analytics.hindsight import FIELDS, Known, curves_known, hindsight
from controlplane.analytics.predicting import Effect, effects_of
from controlplane.dashboard.analytics.marks import Touched
from tenants.access import namespaces_visible
from tenants.actor import Actor
from tenants.levels import Place, levels_of
from tenants.models import Organisation, PolicyLevel, PolicyRevision
from tenants.policy import Change, changes_between, effective_values
from tenants.selectors import policies_before

MOST_SHOWN = 8
Values = Mapping[str, Any]
Policies = Mapping[int, Values]  # by namespace, its own policy


def revisions_touching(actor: Actor, organisation: Organisation, since: datetime, *, now: datetime) -> list[Touched]:
    """Return the revisions that changed a value in force, newest first, given the other levels' current policies.

    Only operators see notes and history of the fleet's level.
    """
    fleet, organisation_level = levels_of(Place(organisation))
    namespaces = namespaces_visible(actor, organisation)
    visible_levels = Q(level__in=[fleet, organisation_level]) | Q(level__namespace__in=namespaces.values("pk"))
    newest = PolicyRevision.objects.filter(visible_levels, at__gte=since).select_related("level__namespace")
    rows = list(newest.order_by("-at")[:MOST_SHOWN])
    before = policies_before(rows)
    with_previous = [(row, before.get((row.level_id, row.number - 1), {})) for row in rows]
    touching = [
        (row, old, changes) for row, old in with_previous if (changes := _changes(fleet, organisation_level, row, old))
    ]
    effects = effects_of([row.pk for row, _, _ in touching], organisation.pk)
    unstored = [changes for row, _, changes in touching if row.pk not in effects]
    is_foretellable = any(change.field in FIELDS for changes in unstored for change in changes)
    namespace_ids = list(namespaces.values_list("pk", flat=True)) if is_foretellable else []
    curves = curves_known(namespace_ids, now) if namespace_ids else {}
    policies = _policies(curves)
    return [
        Touched(
            at=row.at,
            number=row.number,
            **_where(row.level, organisation, actor),
            changes=tuple(changes),
            note="" if row.level.kind == PolicyLevel.Kind.FLEET and not actor.is_operator else row.note,
            is_rollback=row.rolled_back_to is not None,
            effect=effects.get(row.pk)
            or Effect(
                hindsight(
                    curves,
                    _in_force(curves, policies, fleet, organisation_level, row, old),
                    _in_force(curves, policies, fleet, organisation_level, row),
                ),
                None,
                None,
            ),
        )
        for row, old, changes in touching
    ]


def _changes(fleet: PolicyLevel, organisation_level: PolicyLevel, row: PolicyRevision, old: Values) -> list[Change]:
    if row.level_id == fleet.pk:
        return changes_between((old, organisation_level.policy), (row.policy, organisation_level.policy))
    if row.level_id == organisation_level.pk:
        return changes_between((fleet.policy, old), (fleet.policy, row.policy))
    above = fleet.policy, organisation_level.policy
    return changes_between((*above, old), (*above, row.policy))


def _in_force(
    curves: Known,
    policies: Policies,
    fleet: PolicyLevel,
    organisation_level: PolicyLevel,
    row: PolicyRevision,
    old: Values | None = None,
) -> dict[int, Values]:
    """Return the policy in force in each namespace with known traffic, under the revision or its predecessor `old`."""
    values = row.policy if old is None else old
    above = [values if level.pk == row.level_id else level.policy for level in (fleet, organisation_level)]
    is_own = row.level_id not in (fleet.pk, organisation_level.pk)
    return {
        namespace_id: effective_values(
            [*above, values if is_own and row.level.namespace_id == namespace_id else policies.get(namespace_id, {})]
        )
        for namespace_id in curves
    }


def _policies(curves: Known) -> dict[int, Values]:
    levels = PolicyLevel.objects.filter(namespace__in=list(curves)) if curves else ()
    return {level.namespace_id: level.policy for level in levels if level.namespace_id is not None}


def _where(level: PolicyLevel, organisation: Organisation, actor: Actor) -> dict[str, str]:
    if level.kind == PolicyLevel.Kind.FLEET:
        address = reverse("fleet-revisions") if actor.is_operator else ""
        return {"place": "the fleet’s default", "short": "fleet", "address": address}
    if level.namespace is None:
        address = reverse("organisation-revisions", args=[organisation.slug])
        return {"place": "all namespaces", "short": "", "address": address}
    slug = level.namespace.slug
    return {"place": slug, "short": slug, "address": reverse("namespace-revisions", args=[organisation.slug, slug])}
