"""Evictions as they are stored, put there without an engine: for those who read."""

from datetime import datetime

from django.utils import timezone

from controlplane.analytics.displaced import Displaced, Place
from controlplane.analytics.levels_told import Lost, Pair
from controlplane.analytics.stored import evictions_add
from tenants.models import Namespace


def evict(
    victim: Namespace, by: Namespace, blocks: int, *, cause: str = "pressure", at: datetime | None = None
) -> None:
    """Of 1 KiB each."""
    moment, found = (at or timezone.now()).timestamp(), Displaced()
    place = Place("agent-1", "b1", Pair(str(victim.pk), str(by.pk), cause))
    found.take(place, Lost(blocks, blocks * 1024, moment), victim=victim.pk, by=by.pk, at=moment)
    evictions_add(found.buckets)
