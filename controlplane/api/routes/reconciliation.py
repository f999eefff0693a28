"""Operations for operators to read the newest reconciliation of all counts."""

from controlplane.analytics.reconciliations import reconciliation_newest
from controlplane.api.routing import Answer, Call, Group
from controlplane.api.schemas.reconciliation import ReconciliationShown
from tenants import access

group = Group("Numbers")


@group.get("/fleet/reconciliation", access.OPERATE_READ, ReconciliationShown)
def reconciliation_get(call: Call) -> Answer:
    """Compare who counts what.

    What engines counted with what their reports came to, that with the minutes, and those with the pieces that windows
    are read from: every difference with its place, as the newest comparison found it. Operators only.
    """
    newest = reconciliation_newest()
    if newest is None:
        empty_fields = {"as_of": None, "took_seconds": None, "is_reconciled": None}
        return Answer(ReconciliationShown(**empty_fields, compared={}, totals={}, differences=[]))
    is_reconciled = not any(total["differences"] for total in newest.totals.values())
    return Answer(ReconciliationShown.of(newest, as_of=newest.at, is_reconciled=is_reconciled))
