"""Delete old generations, join tokens and probe results."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet

from controlplane.fleet.models import AgentGeneration, CanaryMinute, CanaryStanding, JoinToken
from tenants.services.housekeeping import rows_remove

GENERATIONS_KEPT = timedelta(days=7)
JOIN_TOKENS_KEPT = timedelta(days=90)
PROBES_KEPT = timedelta(days=7)


def housekeeping(*, now: datetime) -> int:
    """Delete expired rows and return how many. The next round deletes any that are left."""
    return sum(rows_remove(rows) for rows in _over(now))


def _over(now: datetime) -> "list[QuerySet[Any]]":
    tokens_before = now - JOIN_TOKENS_KEPT
    return [
        # Generations before the acknowledged one: the agent refuses older ones, so it never applies them again.
        AgentGeneration.objects.filter(number__lt=F("agent__applied_generation"), at__lt=now - GENERATIONS_KEPT),
        JoinToken.objects.filter(Q(revoked_at__lt=tokens_before) | Q(expires_at__lt=tokens_before)),
        CanaryMinute.objects.filter(minute__lt=now - PROBES_KEPT),
        CanaryStanding.objects.filter(at__lt=now - PROBES_KEPT),
    ]
