"""Who gets which state next, and which operations are asked of whom: decided as data. Reads nothing, writes nothing.

Assigning says what an agent is to hold; here it is only compared with what the agent says it holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

FIRST_WAIT_SECONDS = 2.0  # whoever hears of a newer state and gets no command pulls it before that
LONGEST_WAIT_SECONDS = 30.0
STATE = "state"  # the deed that is no command: holding a state is all that it asks


@dataclass(frozen=True, slots=True)
class AgentView:
    """What an agent is to hold, what it said it holds, and how sending to it went."""

    agent_id: str
    desired_generation: int
    desired_hash: str
    desired_at: datetime | None
    applied_generation: int
    applied_hash: str
    push_generation: int = 0  # of what was sent last
    push_hash: str = ""
    push_attempts: int = 0  # how often that was sent
    push_retry_at: datetime | None = None

    @property
    def is_behind(self) -> bool:
        """Also with the right hash: what waits for this generation needs to hear that it arrived."""
        if self.desired_generation == 0:
            return False  # nothing was assigned yet
        return self.applied_generation < self.desired_generation or self.applied_hash != self.desired_hash


@dataclass(frozen=True, slots=True)
class Push:
    """One state to send to one agent. `base` is what it will hold when this arrives; empty where nobody knows."""

    agent_id: str
    generation: int
    target: str
    base: str
    attempts: int  # this one counted
    retry_at: datetime


@dataclass(frozen=True, slots=True)
class StepView:
    """One agent's part of an operation that has not ended."""

    step_id: int
    operation_id: str
    agent_id: str
    deed: str
    generation: int  # that the agent is to hold
    attempts: int = 0
    retry_at: datetime | None = None
    deadline: datetime | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """One operation to ask of one agent."""

    step_id: int
    operation_id: str
    agent_id: str
    deed: str
    generation: int
    arguments: Mapping[str, Any]
    deadline: datetime | None
    attempts: int  # this one counted
    retry_at: datetime


def plan_pushes(agents: Iterable[AgentView], *, now: datetime, limit: int) -> list[Push]:
    """Whom to push to now, who has been due longest first; so nobody waits for ever behind those who fail."""
    due = [(_due_since(one, now), one.agent_id, one) for one in agents if one.is_behind and _is_due(one, now)]
    due.sort(key=lambda each: each[:2])
    return [_push(one, now) for _, _, one in due[:limit]]


def plan_operations(steps: Iterable[StepView], *, now: datetime) -> list[Order]:
    """Which operations to ask for now, oldest step first. Over its deadline nothing is asked any more."""
    due = [one for one in steps if one.deed != STATE and _may_be_asked(one, now)]
    due.sort(key=lambda one: one.step_id)
    return [_order(one, now) for one in due]


def wait_seconds(attempts: int) -> float:
    """How long to wait for an answer after so many attempts: doubling, so an agent that is away costs little."""
    return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(attempts - 1, 30))


def _is_time(retry_at: datetime | None, now: datetime) -> bool:
    """Nobody is made to wait longer than the longest wait: a later time is by a clock that was set back since."""
    return retry_at is None or retry_at <= now or retry_at > now + timedelta(seconds=LONGEST_WAIT_SECONDS)


def _is_due(agent: AgentView, now: datetime) -> bool:
    """What is newer than what was sent replaces it at once; the same waits for its retry."""
    is_newer = agent.push_generation != agent.desired_generation
    return is_newer or _is_time(agent.push_retry_at, now)


def _due_since(agent: AgentView, now: datetime) -> datetime:
    is_newer = agent.push_generation != agent.desired_generation
    return (agent.desired_at if is_newer else agent.push_retry_at) or now


def _push(agent: AgentView, now: datetime) -> Push:
    before = agent.push_attempts if agent.push_generation == agent.desired_generation else 0
    retry_at = now + timedelta(seconds=wait_seconds(before + 1))
    return Push(agent.agent_id, agent.desired_generation, agent.desired_hash, _base(agent, now), before + 1, retry_at)


def _base(agent: AgentView, now: datetime) -> str:
    """What it said it holds; or what is on its way to it just now, for that arrives before this does."""
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
