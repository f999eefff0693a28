"""The switch of the demo's traffic, and what the traffic is doing. The process itself is in demo/traffic.py.

Its requests are counted like all others: the demo's numbers are measured, and start with it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast, get_args

import redis
from django.conf import settings

from controlplane.analytics.models import DemoTraffic
from controlplane.common.health import DEMO_TRAFFIC_KEY, redis_client
from tenants.actor import Actor
from tenants.audit import audited

THE_SWITCH: Final = 1
State = Literal["sends", "paused", "waits"]
STATES: Final[tuple[State, ...]] = get_args(State)


@dataclass(frozen=True, slots=True)
class Switch:
    is_on: bool
    changed_by: str | None
    changed_at: datetime | None


UNTOUCHED: Final = Switch(is_on=True, changed_by=None, changed_at=None)


def demo_traffic_now() -> Switch:
    """Return the switch as last set; on, if it was never set."""
    row = DemoTraffic.objects.filter(pk=THE_SWITCH).first()
    return UNTOUCHED if row is None or not row.changed_by else Switch(row.is_on, row.changed_by, row.changed_at)


def demo_traffic_put(*, actor: Actor, is_on: bool, now: datetime) -> Switch:
    """Set the switch, which survives restarts. Setting the same value keeps the earlier author and time."""
    with audited() as journal:
        DemoTraffic.objects.bulk_create([_row(UNTOUCHED, now)], ignore_conflicts=True)
        row = DemoTraffic.objects.select_for_update(no_key=True).get(pk=THE_SWITCH)
        if row.is_on != is_on:
            row.is_on, row.changed_by, row.changed_at = is_on, actor.name, now
            row.save()
            verb = "demo_traffic.start" if is_on else "demo_traffic.stop"
            journal.record(actor, verb, "demo traffic", before={"is_on": not is_on}, after={"is_on": is_on})
    return demo_traffic_now()


def demo_traffic_state() -> State | None:
    """Return the state that the process reported within the last seconds; None if no such process runs here."""
    try:
        with redis_client(settings.ENVIRONMENT.redis_url) as client:
            reported_state = cast("bytes | None", client.get(DEMO_TRAFFIC_KEY))
    except redis.RedisError:
        return None
    return next((state for state in STATES if reported_state == state.encode()), None)


def _row(switch: Switch, now: datetime) -> DemoTraffic:
    return DemoTraffic(pk=THE_SWITCH, is_on=switch.is_on, changed_by="", changed_at=now)
