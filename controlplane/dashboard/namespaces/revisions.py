"""The revisions that changed a namespace's policy in a window, published at any of its three levels."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.dashboard.namespaces.facts import MOST_MARKS, Revised
from tenants.models import PolicyLevel, PolicyRevision
from tenants.policy import Change, changes_between
from tenants.selectors import policies_before


def revisions_since(levels: Sequence[PolicyLevel], since: datetime, *, is_operator: bool) -> list[Revised]:
    """Return the revisions that changed a value in force here, newest first, given the other levels' current policies.

    Only operators see notes of the fleet's level.
    """
    newest = PolicyRevision.objects.filter(level__in=levels, at__gte=since).order_by("-at")[:MOST_MARKS]
    rows = list(newest)
    before = policies_before(rows)
    names = {level.pk: _origin(level) for level in levels}
    revisions = [
        Revised(
            at=row.at,
            number=row.number,
            origin=names[row.level_id],
            changes=tuple(_changes(levels, row, before.get((row.level_id, row.number - 1), {}))),
            note=row.note if is_operator or names[row.level_id] != FLEET_WORDS else "",
        )
        for row in rows
    ]
    return [revision for revision in revisions if revision.changes]


def _changes(levels: Sequence[PolicyLevel], row: PolicyRevision, before: Mapping[str, Any]) -> list[Change]:
    def chain(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [values if level.pk == row.level_id else level.policy for level in levels]

    return changes_between(chain(before), chain(row.policy))


FLEET_WORDS = "the fleet’s default"


def _origin(level: PolicyLevel) -> str:
    if level.kind == PolicyLevel.Kind.FLEET:
        return FLEET_WORDS
    return "the organisation" if level.kind == PolicyLevel.Kind.ORGANISATION else ""
