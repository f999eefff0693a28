"""The scopes that agents count in their heartbeats: the levels with an open canary."""

import time
from threading import Lock

from controlplane.rollouts.models import Rollout
from tenants.models import PolicyLevel

MOST_SCOPES = 60  # a heartbeat has room for 64; a canary beyond that gets too little evidence and pauses
FRESH_SECONDS = 1.0


class _Kept:
    """Caches the scopes for a second, because every report needs them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._scopes: tuple[str, ...] = ()
        self._read_at = float("-inf")

    def scopes(self) -> tuple[str, ...]:
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self._scopes, self._read_at = scopes_read(), time.monotonic()
            return self._scopes


_kept = _Kept()


def watched_scopes() -> tuple[str, ...]:
    """Return the scopes as heartbeats name them: `fleet`, `org/<id>`, `ns/<id>`. Up to a second old."""
    return _kept.scopes()


def scopes_read() -> tuple[str, ...]:
    """Return the scopes, oldest rollout first, so that a watched level stays watched."""
    canaries = Rollout.objects.filter(state__in=Rollout.OPEN, strategy="canary").select_related("level")
    return tuple(scope_of(canary.level) for canary in canaries.order_by("created_at")[:MOST_SCOPES])


def scope_of(level: PolicyLevel) -> str:
    if level.organisation_id is not None:
        return f"org/{level.organisation_id}"
    return "fleet" if level.namespace_id is None else f"ns/{level.namespace_id}"
