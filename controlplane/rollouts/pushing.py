"""Send the planned commands and record that they were sent.

Call it within `planning()`: commands of two planners would enter a queue in any order. With the broker away nothing is
recorded, so the next sweep tries again.
"""

import base64
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from controlplane.fleet.columns import rows_update
from controlplane.fleet.errors import BrokerAway
from controlplane.fleet.models import Agent, AgentGeneration, OperationStep
from controlplane.fleet.operations import agents_lock
from controlplane.rollouts.desired import recent
from controlplane.rollouts.plan import (
    LONGEST_WAIT_SECONDS,
    STATE,
    AgentView,
    Order,
    Push,
    StepView,
    plan_operations,
    plan_pushes,
)
from controlplane.rollouts.transport import Outgoing, commands_send
from engine_agent.contracts.protocol import MAX_CHANGE_BYTES, change_between, change_encode
from engine_agent.contracts.wire import COMMAND_SECONDS, Command, Deed

log = logging.getLogger("luminet.rollouts")
AT_ONCE = 200  # commands in one round trip to the broker
SEAL_BYTES = 28  # what sealing adds: nonce and tag
PATIENCE = timedelta(days=1)  # for an operation without a deadline


def states_push(*, now: datetime) -> int:
    """Send the state to every agent that is due, and return how many."""
    return _all_sent(lambda: plan_pushes(_agents_behind(), now=now, limit=AT_ONCE), _states_send, now=now)


def operations_push(*, now: datetime) -> int:
    """Send every command that an operation waits for and that is due, and return how many."""
    return _all_sent(lambda: plan_operations(_steps_due(now), now=now)[:AT_ONCE], _orders_send, now=now)


def _all_sent(
    plan: Callable[[], Sequence[Any]], send: Callable[[Sequence[Any], datetime], None], *, now: datetime
) -> int:
    """Send in batches until the plan is empty, and return how many commands were sent."""
    count = 0
    try:
        while due := plan():
            send(due, now)
            count += len(due)
    except BrokerAway as error:
        log.warning("commands have to wait for the broker", extra={"reason": str(error)})
    return count


def _command(agent: str, action: Deed, generation: int, body: dict[str, Any], now: datetime) -> Command:
    issued = now.timestamp()
    return Command(agent, uuid.uuid4().hex, action, generation, issued, issued + COMMAND_SECONDS, body)


def _send(commands: Iterable[Command]) -> None:
    pending_commands = list(commands)
    numbers = dict(
        Agent.objects.filter(pk__in={command.agent for command in pending_commands}).values_list("pk", "key_number")
    )
    outgoing = [Outgoing(command, numbers[command.agent]) for command in pending_commands if command.agent in numbers]
    commands_send(outgoing, url=settings.ENVIRONMENT.redis_url)


# States


def _agents_behind() -> list[AgentView]:
    """Return the agents that are behind; the plan decides which are due."""
    is_behind = Q(applied_generation__lt=F("desired_generation")) | ~Q(applied_hash=F("desired_hash"))
    sent = AgentGeneration.objects.filter(agent=OuterRef("pk"), number=OuterRef("push_generation"))
    columns = ("desired_generation", "desired_hash", "desired_at", "applied_generation", "applied_hash")
    push_columns = ("push_generation", "push_hash", "push_attempts", "push_retry_at")
    living = Agent.objects.filter(is_behind, revoked_at=None, desired_generation__gt=0)
    rows: Any = living.annotate(push_hash=Subquery(sent.values("hash")[:1])).values_list("pk", *columns, *push_columns)
    return [AgentView(*row) for row in rows]


def _states_send(pushes: Sequence[Push], now: datetime) -> None:
    changes = {pair: _change(*pair) for pair in {(push.base, push.target) for push in pushes}}
    _send(_apply(push, changes[push.base, push.target], now) for push in pushes)
    _pushes_record(pushes)


def _apply(push: Push, change: str | None, now: datetime) -> Command:
    body = {"base": push.base or None, "target": push.target, "change": change}
    return _command(push.agent_id, "apply", push.generation, body, now)


def _change(base: str, target: str) -> str | None:
    """Return the change between two states if both are cached here and it is small enough.

    Otherwise the agent pulls the whole state.
    """
    before, after = recent.get(base), recent.get(target)
    if before is None or after is None or before.kind != after.kind:
        return None
    encoded = change_encode(change_between(before, after))
    return None if len(encoded) + SEAL_BYTES > MAX_CHANGE_BYTES else base64.b64encode(encoded).decode()


def _pushes_record(pushes: Sequence[Push]) -> None:
    rows = [(push.agent_id, push.generation, push.attempts, push.retry_at) for push in pushes]
    columns = "id text, push_generation bigint, push_attempts integer, push_retry_at timestamptz"
    with transaction.atomic():
        list(agents_lock([push.agent_id for push in pushes]).values_list("pk", flat=True))
        rows_update(Agent, columns, rows)


# Operations


def _steps_due(now: datetime) -> list[StepView]:
    """Return the steps that are due; the plan decides what to request."""
    is_due = Q(retry_at=None) | Q(retry_at__lte=now) | Q(retry_at__gt=now + timedelta(seconds=LONGEST_WAIT_SECONDS))
    is_on_time = Q(deadline=None) | Q(deadline__gt=now)
    waiting = OperationStep.objects.filter(is_due, is_on_time, state=OperationStep.State.WAITING)
    return [_step_view(step) for step in _commanded(waiting)]


def _commanded(steps: "QuerySet[OperationStep]") -> "QuerySet[OperationStep]":
    return steps.exclude(deed=STATE).filter(agent__revoked_at=None).select_related("agent").order_by("pk")


def _step_view(step: OperationStep) -> StepView:
    return StepView(
        step.pk,
        str(step.operation_id),
        step.agent_id,
        step.deed,
        step.agent.desired_generation,
        step.attempts,
        step.retry_at,
        step.deadline,
        step.arguments,
    )


def _orders_send(orders: Sequence[Order], now: datetime) -> None:
    _send(_operation(order, now) for order in orders)
    rows = [(order.step_id, order.attempts, order.retry_at) for order in orders]
    with transaction.atomic():
        ids = [order.step_id for order in orders]
        list(OperationStep.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk").values_list("pk"))
        rows_update(OperationStep, "id bigint, attempts integer, retry_at timestamptz", rows)


def _operation(order: Order, now: datetime) -> Command:
    deadline = (order.deadline or now + PATIENCE).timestamp()
    body = {"operation": order.operation_id, "deed": order.deed, "arguments": order.arguments, "deadline": deadline}
    return _command(order.agent_id, "operation", order.generation, body, now)
