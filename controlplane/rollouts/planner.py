"""One round of the plan: say what everybody is to hold, and send it to who does not hold it."""

import logging
from datetime import datetime

import redis

from controlplane.fleet.operations import steps_settle
from controlplane.live.services import fleet_nudge
from controlplane.rollouts.assigning import planning, states_assign
from controlplane.rollouts.pushing import operations_push, states_push
from controlplane.rollouts.waking import push_begins

log = logging.getLogger("luminet.rollouts")


def plan_carry_out(*, now: datetime) -> int:
    """How many commands were sent. Any number may ask for it at once: one after the other has its round."""
    with planning():
        _news_from_here_on()
        planned = states_assign(now=now)
        sent = states_push(now=now) + operations_push(now=now)
    if sent:
        log.info("sent commands", extra={"commands": sent, "assigned": len(planned.assigned)})
    if planned.steps:  # of agents that were to hold the very same before
        steps_settle(now=now)
    if planned.assigned:
        pages_nudge(now=now)
    return sent


def _news_from_here_on() -> None:
    try:
        push_begins()
    except redis.RedisError as error:
        log.warning("the broker is away", extra={"reason": str(error)})


def pages_nudge(*, now: datetime) -> None:
    """Open pages of the fleet look again; one that misses it looks at the next."""
    try:
        fleet_nudge({"type": "fleet", "at": now.timestamp()})
    except (redis.RedisError, OSError) as error:
        log.warning("open pages were not told", extra={"reason": str(error)})
