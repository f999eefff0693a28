"""One round of the plan: assign every agent's desired state, and send it to the agents that are behind."""

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
    """Run one round and return how many commands were sent. Concurrent calls run one after the other."""
    with planning():
        _news_from_here_on()
        planned = states_assign(now=now)
        sent = states_push(now=now) + operations_push(now=now)
    if sent:
        log.info("sent commands", extra={"commands": sent, "assigned": len(planned.assigned)})
    if planned.steps:  # of agents with an unchanged desired state
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
    """Make open fleet pages refresh. A page that misses this refreshes with the next one."""
    try:
        fleet_nudge({"type": "fleet", "at": now.timestamp()})
    except (redis.RedisError, OSError) as error:
        log.warning("open pages were not told", extra={"reason": str(error)})
