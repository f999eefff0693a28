"""What is kept of agents for a while only."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet

from controlplane.fleet.models import AgentGeneration, CanaryMinute, CanaryStanding, JoinToken
from tenants.services.housekeeping import rows_remove

GENERATIONS_KEPT = timedelta(days=7)
JOIN_TOKENS_KEPT = timedelta(days=90)
PROBES_KEPT = timedelta(days=7)


def housekeeping(*, now: datetime) -> int:
    """How many rows went; what is left over goes with the next round."""
    return sum(rows_remove(rows) for rows in _over(now))


def _over(now: datetime) -> "list[QuerySet[Any]]":
    tokens_before = now - JOIN_TOKENS_KEPT
    return [
        # Those before what its agent acknowledged: it never holds them again, for an older one is refused.
        AgentGeneration.objects.filter(number__lt=F("agent__applied_generation"), at__lt=now - GENERATIONS_KEPT),
        JoinToken.objects.filter(Q(revoked_at__lt=tokens_before) | Q(expires_at__lt=tokens_before)),
        CanaryMinute.objects.filter(minute__lt=now - PROBES_KEPT),
        CanaryStanding.objects.filter(at__lt=now - PROBES_KEPT),
    ]
