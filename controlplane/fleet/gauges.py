"""The fleet's metrics for Prometheus, read from the database by the web process that is scraped."""

from collections import Counter
from datetime import datetime

from django.db import DatabaseError
from django.utils import timezone

from controlplane.common.metrics import agents_by_state, agents_out_of_sync
from controlplane.fleet.cadence import cadence_seconds
from controlplane.fleet.health import AGENT_STATES
from controlplane.fleet.models import KINDS
from controlplane.fleet.selectors import agents_living
from controlplane.fleet.views import is_agent_in_sync, state_of


def gauges_refresh(*, now: datetime | None = None) -> None:
    """Set the gauges. If the database does not answer, leave them unchanged."""
    try:
        living = list(agents_living().defer("conditions", "about"))
    except DatabaseError:
        return
    cadence = cadence_seconds(len(living))
    states = Counter((agent.kind, state_of(agent, now=now or timezone.now(), cadence=cadence)) for agent in living)
    out_of_sync = Counter(agent.kind for agent in living if not is_agent_in_sync(agent))
    for kind in KINDS:
        agents_out_of_sync.labels(kind).set(out_of_sync[kind])
        for state in AGENT_STATES:
            if state != "revoked":  # revoked agents no longer belong to the fleet
                agents_by_state.labels(kind, state).set(states[kind, state])
