"""Which revision an agent is to hold while a rollout is under way."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.rollouts.reach import NOTHING, RolloutView, held_by, held_revision, superseded_by_next

FLEET, ACME, CHAT = (None, None), (1, None), (None, 7)


def rollout(**changes: Any) -> RolloutView:
    """Revision 5 comes to agent-1 first; everybody else holds 4."""
    view = RolloutView(level=CHAT, revision=5, newest_revision=5, base_revision=4, reached=frozenset({"agent-1"}))
    return replace(view, **changes)


def test_who_is_reached_holds_the_newest_and_who_is_not_the_one_before() -> None:
    assert held_revision(rollout(), "agent-1", "engine") is None
    assert held_revision(rollout(), "agent-2", "engine") == 4


def test_who_a_superseded_rollout_had_reached_keeps_what_that_brought() -> None:
    later = rollout(revision=6, newest_revision=6, reached=frozenset(), held_revisions={"agent-1": 5})
    assert held_revision(later, "agent-1", "engine") == 5
    assert held_revision(later, "agent-2", "engine") == 4


def test_gateways_hold_the_newest_from_the_start() -> None:
    assert held_revision(rollout(), "gateway-1", "gateway") is None


def test_a_revision_published_past_a_rollout_goes_to_everybody() -> None:
    past = rollout(newest_revision=6)
    assert held_revision(past, "agent-2", "engine") is None
    assert superseded_by_next(past) == (6, {})


def test_at_the_last_step_nobody_is_held_back_also_who_enrolled_since() -> None:
    last = rollout(is_for_everybody=True)
    assert held_revision(last, "agent-9", "engine") is None
    assert superseded_by_next(last) == (5, {})


def test_before_anything_was_published_the_older_revision_is_the_empty_one() -> None:
    assert held_revision(rollout(revision=1, newest_revision=1, base_revision=0), "agent-2", "engine") == 0


def test_an_agent_holds_back_in_every_level_that_has_not_reached_it() -> None:
    fleet = rollout(level=FLEET, revision=2, newest_revision=2, base_revision=1)
    acme = rollout(level=ACME, reached=frozenset({"agent-2"}))
    assert held_by("agent-1", "engine", [rollout(), fleet, acme]) == {(ACME, 4)}
    assert held_by("agent-2", "engine", [rollout(), fleet, acme]) == {(CHAT, 4), (FLEET, 1)}
    assert held_by("agent-1", "engine", []) == NOTHING


def test_superseding_changes_what_nobody_holds() -> None:
    before = rollout(reached=frozenset({"agent-1", "agent-4"}), held_revisions={"agent-3": 2, "agent-4": 3})
    assert superseded_by_next(before) == (4, {"agent-1": 5, "agent-3": 2, "agent-4": 5})


agents = st.sampled_from([f"agent-{number}" for number in range(5)])


@given(st.frozensets(agents), st.dictionaries(agents, st.integers(0, 4)), st.integers(0, 4))
def test_who_is_not_reached_by_the_next_rollout_goes_on_holding_what_it_held(
    reached: frozenset[str], held: dict[str, int], base: int
) -> None:
    before = rollout(reached=reached, held_revisions=held, base_revision=base)
    next_base, next_held = superseded_by_next(before)
    after = rollout(
        revision=6, newest_revision=6, base_revision=next_base, held_revisions=next_held, reached=frozenset()
    )
    for number in range(5):
        was = held_revision(before, f"agent-{number}", "engine")
        assert held_revision(after, f"agent-{number}", "engine") == (5 if was is None else was)
