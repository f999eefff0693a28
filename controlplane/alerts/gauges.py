"""Gauges of alerts for Prometheus. Each web process reads them from the database, so all report the same."""

from django.db import DatabaseError

from controlplane.alerts.definitions import BUILT_IN, OWN_RULES
from controlplane.alerts.selectors import deliveries_waiting, evaluation_newest, firing_by_rule
from controlplane.common.metrics import alert_deliveries_waiting, alerts_evaluated, alerts_firing


def gauges_refresh() -> None:
    """Update the gauges. If the database does not answer they stay, and `alerts_evaluated` shows how old they are."""
    try:
        firing, waiting, newest = firing_by_rule(), deliveries_waiting(), evaluation_newest()
    except DatabaseError:
        return
    for rule in (*(definition.key for definition in BUILT_IN), OWN_RULES):
        alerts_firing.labels(rule).set(firing.get(rule, 0))
    alert_deliveries_waiting.set(waiting)
    alerts_evaluated.set(0 if newest is None else newest.at.timestamp())
