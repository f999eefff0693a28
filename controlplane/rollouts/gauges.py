"""The rollouts' metrics for Prometheus, read from the database by the web process that is scraped."""

from django.db import DatabaseError
from django.db.models import Count

from controlplane.common.metrics import rollouts_under_way
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.selectors import rollouts_open


def gauges_refresh() -> None:
    """Set the gauges. If the database does not answer, leave them unchanged."""
    try:
        counts = dict(rollouts_open().values_list("state").annotate(count=Count("pk")).order_by())
    except DatabaseError:
        return
    for state in Rollout.OPEN:
        rollouts_under_way.labels(state.value).set(counts.get(state, 0))
