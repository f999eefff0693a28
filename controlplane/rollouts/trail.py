"""The history of a rollout in the audit trail."""

from controlplane.rollouts.models import Rollout
from tenants.access import audit_visible
from tenants.actor import Actor
from tenants.levels import place_of
from tenants.models import AuditRecord

MOST = 50


def rollout_records(actor: Actor, rollout: Rollout) -> list[AuditRecord]:
    """Return its records in the trail of the organisation that has the policy, newest first."""
    organisation = place_of(rollout.level).organisation
    records = audit_visible(actor).filter(
        organisation_id=None if organisation is None else organisation.pk,
        verb__startswith="rollout.",
        target=rollout.place,
        after__contains=str(rollout.pk),
    )
    return list(records.order_by("-seq")[:MOST])
