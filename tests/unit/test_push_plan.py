"""Who gets which state next: decided on plain values."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.rollouts.plan import (
    LONGEST_WAIT_SECONDS,
    AgentView,
    Push,
    StepView,
    plan_operations,
    plan_pushes,
    wait_seconds,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B, C = "a" * 64, "b" * 64, "c" * 64
MANY = 1_000


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def behind(agent_id: str = "agent-1", **changes: Any) -> AgentView:
    """Holds generation 1 and is to hold generation 2, of which nothing was sent."""
    return replace(AgentView(agent_id, 2, B, at(-5), 1, A), **changes)


def converged(agent_id: str = "agent-1") -> AgentView:
    return behind(agent_id, applied_generation=2, applied_hash=B)


def sent(agent: AgentView, push: Push) -> AgentView:
    """As it is written down."""
    return replace(
        agent,
        push_generation=push.generation,
        push_hash=push.target,
        push_attempts=push.attempts,
        push_retry_at=push.retry_at,
    )


def names(pushes: list[Push]) -> list[str]:
    return [one.agent_id for one in pushes]


@pytest.mark.parametrize("ahead", [3_600, 86_400])
def test_a_retry_from_before_the_clock_was_set_back_is_not_waited_for(ahead: float) -> None:
    assert plan_pushes([behind(push_generation=2, push_attempts=1, push_retry_at=at(ahead))], now=at(0), limit=9)


def test_a_converged_fleet_is_left_alone() -> None:
    assert plan_pushes([converged(f"agent-{number}") for number in range(5)], now=NOW, limit=MANY) == []


def test_who_is_behind_gets_what_it_is_to_hold_against_what_it_holds() -> None:
    (push,) = plan_pushes([behind()], now=NOW, limit=MANY)
    assert (push.agent_id, push.generation, push.target, push.base) == ("agent-1", 2, B, A)
    assert (push.attempts, push.retry_at) == (1, at(2))


def test_who_has_never_said_what_it_holds_gets_no_base() -> None:
    (push,) = plan_pushes([behind(applied_generation=0, applied_hash="")], now=NOW, limit=MANY)
    assert push.base == ""


def test_who_has_been_assigned_nothing_gets_nothing() -> None:
    new = AgentView("agent-1", 0, "", None, 0, "")
    assert plan_pushes([new], now=NOW, limit=MANY) == []


def test_the_right_hash_under_an_older_generation_is_not_enough() -> None:
    (push,) = plan_pushes([behind(applied_hash=B)], now=NOW, limit=MANY)
    assert (push.base, push.target) == (B, B)


def test_the_right_generation_with_another_hash_is_not_enough() -> None:
    assert names(plan_pushes([behind(applied_generation=2, applied_hash=C)], now=NOW, limit=MANY)) == ["agent-1"]


def test_the_same_state_is_not_sent_again_before_its_retry() -> None:
    (push,) = plan_pushes([behind()], now=NOW, limit=MANY)
    waiting = sent(behind(), push)
    assert plan_pushes([waiting], now=at(1.9), limit=MANY) == []
    (again,) = plan_pushes([waiting], now=at(2), limit=MANY)
    assert (again.attempts, again.retry_at) == (2, at(2 + 4))


def test_a_newer_state_replaces_a_pending_one_at_once_and_its_waiting_begins_anew() -> None:
    waiting = behind(push_generation=2, push_hash=B, push_attempts=7, push_retry_at=at(29))
    assert plan_pushes([waiting], now=NOW, limit=MANY) == []
    newer = replace(waiting, desired_generation=3, desired_hash=C, desired_at=NOW)
    (push,) = plan_pushes([newer], now=NOW, limit=MANY)
    assert (push.generation, push.target, push.attempts, push.retry_at) == (3, C, 1, at(2))


def test_what_is_on_its_way_is_what_the_next_change_starts_from() -> None:
    under_way = behind(push_generation=2, push_hash=B, push_attempts=1, push_retry_at=at(0.5))
    newer = replace(under_way, desired_generation=3, desired_hash=C)
    assert [one.base for one in plan_pushes([newer], now=NOW, limit=MANY)] == [B]
    lost = replace(newer, push_retry_at=at(-0.1))
    assert [one.base for one in plan_pushes([lost], now=NOW, limit=MANY)] == [A]
    arrived = replace(newer, applied_generation=2, applied_hash=B)
    assert [one.base for one in plan_pushes([arrived], now=NOW, limit=MANY)] == [B]


def test_waiting_doubles_up_to_half_a_minute() -> None:
    assert [wait_seconds(attempts) for attempts in range(1, 7)] == [2, 4, 8, 16, 30, 30]
    assert wait_seconds(10**9) == LONGEST_WAIT_SECONDS


def test_who_has_been_due_longest_comes_first_and_the_limit_cuts_off_the_rest() -> None:
    retried = behind("retried", push_generation=2, push_attempts=3, push_retry_at=at(-20))
    fresh, older = behind("fresh", desired_at=at(-1)), behind("older", desired_at=at(-10))
    agents = [fresh, older, retried]
    assert names(plan_pushes(agents, now=NOW, limit=MANY)) == ["retried", "older", "fresh"]
    assert names(plan_pushes(agents, now=NOW, limit=2)) == ["retried", "older"]
    assert plan_pushes(agents, now=NOW, limit=0) == []


# Whatever there is

hashes = st.sampled_from(["", A, B, C])
instants = st.none() | st.integers(-60, 60).map(at)
agents = st.builds(
    AgentView,
    agent_id=st.sampled_from([f"agent-{number}" for number in range(6)]),
    desired_generation=st.integers(0, 4),
    desired_hash=hashes,
    desired_at=instants,
    applied_generation=st.integers(0, 4),
    applied_hash=hashes,
    push_generation=st.integers(0, 4),
    push_hash=hashes,
    push_attempts=st.integers(0, 40),
    push_retry_at=instants,
)
fleets = st.lists(agents, unique_by=lambda one: one.agent_id)


@given(fleets, st.integers(0, 8))
def test_nobody_is_pushed_to_twice_or_without_need_or_to_anything_but_what_it_is_to_hold(
    fleet: list[AgentView], limit: int
) -> None:
    by_id = {one.agent_id: one for one in fleet}
    pushes = plan_pushes(fleet, now=NOW, limit=limit)
    assert len(pushes) <= limit
    assert len(set(names(pushes))) == len(pushes)
    for push in pushes:
        agent = by_id[push.agent_id]
        assert (push.generation, push.target) == (agent.desired_generation, agent.desired_hash)
        assert (agent.applied_generation, agent.applied_hash) != (push.generation, push.target)
        assert NOW < push.retry_at <= at(LONGEST_WAIT_SECONDS)


@given(fleets)
def test_the_order_of_the_agents_means_nothing(fleet: list[AgentView]) -> None:
    assert plan_pushes(fleet, now=NOW, limit=3) == plan_pushes(fleet[::-1], now=NOW, limit=3)


@given(fleets)
def test_what_was_sent_is_not_sent_again_at_once(fleet: list[AgentView]) -> None:
    pushes = {one.agent_id: one for one in plan_pushes(fleet, now=NOW, limit=MANY)}
    after = [sent(one, pushes[one.agent_id]) if one.agent_id in pushes else one for one in fleet]
    assert plan_pushes(after, now=NOW, limit=MANY) == []


@given(fleets, st.integers(1, 3))
def test_with_any_limit_everybody_who_is_behind_is_pushed_to_in_the_end(fleet: list[AgentView], limit: int) -> None:
    wanted = {one.agent_id for one in fleet if one.is_behind}
    told: set[str] = set()
    now = NOW
    for _ in range(len(fleet) * 2 + 70):  # seconds: beyond the last retry there is
        for push in plan_pushes(fleet, now=now, limit=limit):
            told.add(push.agent_id)
            fleet = [sent(one, push) if one.agent_id == push.agent_id else one for one in fleet]
        now += timedelta(seconds=1)
    assert told == wanted


# Operations


def step(step_id: int = 1, **changes: Any) -> StepView:
    return replace(StepView(step_id, "op", "agent-1", "drain", 4, deadline=at(60)), **changes)


def test_an_operation_is_asked_for_with_what_it_needs() -> None:
    (order,) = plan_operations([step(arguments={"pin": "p"})], now=NOW)
    assert (order.step_id, order.operation_id, order.agent_id, order.deed) == (1, "op", "agent-1", "drain")
    assert (order.generation, order.arguments, order.deadline) == (4, {"pin": "p"}, at(60))
    assert (order.attempts, order.retry_at) == (1, at(2))


def test_an_operation_is_asked_for_again_with_growing_waits() -> None:
    assert plan_operations([step(attempts=2, retry_at=at(0.1))], now=NOW) == []
    (order,) = plan_operations([step(attempts=2, retry_at=NOW)], now=NOW)
    assert (order.attempts, order.retry_at) == (3, at(8))


@pytest.mark.parametrize("deadline", [NOW, at(-1)])
def test_over_its_deadline_an_operation_is_not_asked_for_any_more(deadline: datetime) -> None:
    assert plan_operations([step(deadline=deadline)], now=NOW) == []


def test_holding_a_state_is_asked_for_by_the_state_alone() -> None:
    assert plan_operations([step(deed="state")], now=NOW) == []


def test_older_operations_come_first() -> None:
    orders = plan_operations([step(3), step(1, deadline=None), step(2)], now=NOW)
    assert [one.step_id for one in orders] == [1, 2, 3]
