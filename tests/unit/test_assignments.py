"""What each agent is to hold from now on, and from which generation on an operation's step is done."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.rollouts.assigning import (
    MOST_BELIEVED,
    Assignment,
    Held,
    PlannedStep,
    WaitingStep,
    assignments_plan,
    steps_plan,
)
from controlplane.rollouts.desired import Holder, OpenRollout
from controlplane.rollouts.reach import RolloutView

A, B = "a" * 64, "b" * 64


def held(agent: str = "agent-1", **changes: Any) -> Held:
    return replace(Held(Holder(agent, "engine", 1), A, 5, 5), **changes)


def test_who_is_to_hold_the_same_keeps_its_generation() -> None:
    assert assignments_plan([held()], {"agent-1": A}) == []


def test_another_hash_has_the_next_generation() -> None:
    assert assignments_plan([held()], {"agent-1": B}) == [Assignment("agent-1", 5, 6, B)]


def test_above_what_an_agent_claims_to_hold_also_with_the_same_hash() -> None:
    assert assignments_plan([held(told_generation=9)], {"agent-1": A}) == [Assignment("agent-1", 5, 10, A)]
    assert assignments_plan([held(told_generation=9)], {"agent-1": B}) == [Assignment("agent-1", 5, 10, B)]


def test_beyond_belief_it_goes_on_counting_by_itself() -> None:
    (first,) = assignments_plan([held(told_generation=2**63 - 1)], {"agent-1": A})
    assert first.generation == MOST_BELIEVED + 1
    after = held(generation=first.generation, told_generation=2**63 - 1)
    assert assignments_plan([after], {"agent-1": A}) == []
    assert assignments_plan([after], {"agent-1": B}) == [Assignment("agent-1", first.generation, MOST_BELIEVED + 2, B)]


generations = st.integers(0, 2**63 - 1)


@given(generations.filter(lambda number: number <= MOST_BELIEVED), generations, st.sampled_from([A, B]))
def test_a_generation_only_ever_grows_and_fits_the_database(generation: int, told: int, wanted: str) -> None:
    for one in assignments_plan([held(generation=generation, told_generation=told)], {"agent-1": wanted}):
        assert generation < one.generation < 2**63
        assert one.generation > min(told, MOST_BELIEVED)


# Steps


def step(number: int = 1, agent: str = "agent-1", operation: str = "op") -> WaitingStep:
    return WaitingStep(number, agent, operation)


def rollout(*reached: str, operation: str | None = "op") -> OpenRollout:
    view = RolloutView((None, 7), 5, 5, 4, frozenset(reached))
    return OpenRollout("r", 3, view, 0.1, operation)


def test_a_step_is_done_with_the_generation_that_its_agent_is_to_hold() -> None:
    assert steps_plan([step()], [held()], [], {"agent-1": 6}) == [PlannedStep(1, "agent-1", 6)]


def test_a_step_of_an_agent_that_is_to_hold_nothing_is_left() -> None:
    assert steps_plan([step(agent="revoked")], [held()], [], {"agent-1": 6}) == []


def test_a_step_of_a_rollout_waits_until_its_agent_is_reached() -> None:
    agents, numbers = [held("agent-1"), held("agent-2")], {"agent-1": 6, "agent-2": 5}
    steps = [step(1, "agent-1"), step(2, "agent-2")]
    assert steps_plan(steps, agents, [rollout("agent-1")], numbers) == [PlannedStep(1, "agent-1", 6)]
    assert len(steps_plan(steps, agents, [rollout("agent-1", "agent-2")], numbers)) == 2


def test_steps_of_other_operations_wait_for_no_rollout() -> None:
    planned = steps_plan([step(operation="purge")], [held()], [rollout()], {"agent-1": 6})
    assert planned == [PlannedStep(1, "agent-1", 6)]
    assert steps_plan([step()], [held()], [rollout(operation=None)], {"agent-1": 6}) == planned
