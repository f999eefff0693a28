"""Plan as data which agents get a state next, and which operations are requested. Reads nothing, writes nothing.

assigning.py decides the desired states; here they are only compared with what agents report.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

FIRST_WAIT_SECONDS = 2.0  # an agent that learns of a newer state and gets no command pulls it before that
LONGEST_WAIT_SECONDS = 30.0
STATE = "state"  # the action that is not a command: it only requires that a state is applied


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent's desired state, the state it reports, and the progress of sending."""

    agent_id: str
    desired_generation: int
    desired_hash: str
    desired_at: datetime | None
    applied_generation: int
    applied_hash: str
    push_generation: int = 0  # of the state sent last
    push_hash: str = ""
    push_attempts: int = 0  # how often it was sent
    push_retry_at: datetime | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether an acknowledgement is missing. Even with the right hash, steps may wait for the generation."""
        if self.desired_generation == 0:
            return False  # nothing was assigned yet
        return self.applied_generation < self.desired_generation or self.applied_hash != self.desired_hash


@dataclass(frozen=True, slots=True)
class Push:
    """One state to send to one agent. `base` is the state it will have when this arrives; empty if unknown."""

    agent_id: str
    generation: int
    target: str
    base: str
    attempts: int  # including this one
    retry_at: datetime


@dataclass(frozen=True, slots=True)
class StepView:
    """One agent's part of an operation that has not ended."""

    step_id: int
    operation_id: str
    agent_id: str
    deed: str
    generation: int  # the agent's desired generation
    attempts: int = 0
    retry_at: datetime | None = None
    deadline: datetime | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """One action of an operation to request from one agent."""

    step_id: int
    operation_id: str
    agent_id: str
    deed: str
    generation: int
    arguments: Mapping[str, Any]
    deadline: datetime | None
    attempts: int  # including this one
    retry_at: datetime


def plan_pushes(agents: Iterable[AgentView], *, now: datetime, limit: int) -> list[Push]:
    """Return the states to send now, those due longest first, so that no agent waits forever behind failing ones."""
    due = [
        (_due_since(agent, now), agent.agent_id, agent) for agent in agents if agent.is_behind and _is_due(agent, now)
    ]
    due.sort(key=lambda entry: entry[:2])
    return [_push(agent, now) for _, _, agent in due[:limit]]


def plan_operations(steps: Iterable[StepView], *, now: datetime) -> list[Order]:
    """Return the actions to request now, oldest step first. None is requested after its deadline."""
    due = [step for step in steps if step.deed != STATE and _may_be_asked(step, now)]
    due.sort(key=lambda step: step.step_id)
    return [_order(step, now) for step in due]


def wait_seconds(attempts: int) -> float:
    """Return how long to wait for an answer after so many attempts: it doubles, so an absent agent costs little."""
    return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(attempts - 1, 30))


def _is_time(retry_at: datetime | None, now: datetime) -> bool:
    """Return whether a retry is due. A time beyond the longest wait is due too: the clock was set back since."""
    return retry_at is None or retry_at <= now or retry_at > now + timedelta(seconds=LONGEST_WAIT_SECONDS)


def _is_due(agent: AgentView, now: datetime) -> bool:
    """Return whether to send now. A state newer than the last one sent is due at once, the same state at its retry."""
    is_newer = agent.push_generation != agent.desired_generation
    return is_newer or _is_time(agent.push_retry_at, now)


def _due_since(agent: AgentView, now: datetime) -> datetime:
    is_newer = agent.push_generation != agent.desired_generation
    return (agent.desired_at if is_newer else agent.push_retry_at) or now


def _push(agent: AgentView, now: datetime) -> Push:
    previous_attempts = agent.push_attempts if agent.push_generation == agent.desired_generation else 0
    retry_at = now + timedelta(seconds=wait_seconds(previous_attempts + 1))
    return Push(
        agent.agent_id, agent.desired_generation, agent.desired_hash, _base(agent, now), previous_attempts + 1, retry_at
    )


def _base(agent: AgentView, now: datetime) -> str:
    """Return the state that the agent reports, or the one that is on its way to it and arrives first."""
    is_under_way = agent.applied_generation < agent.push_generation < agent.desired_generation
    if is_under_way and agent.push_retry_at is not None and now < agent.push_retry_at:
        return agent.push_hash or agent.applied_hash
    return agent.applied_hash


def _may_be_asked(step: StepView, now: datetime) -> bool:
    is_late = step.deadline is not None and step.deadline <= now
    return not is_late and _is_time(step.retry_at, now)


def _order(step: StepView, now: datetime) -> Order:
    attempts = step.attempts + 1
    retry_at = now + timedelta(seconds=wait_seconds(attempts))
    return Order(
        step.step_id,
        step.operation_id,
        step.agent_id,
        step.deed,
        step.generation,
        step.arguments,
        step.deadline,
        attempts,
        retry_at,
    )
