"""Whom a rollout reaches at each step, and what it does next: nothing without a reason, back before anything else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.rollouts.guards import Finding
from controlplane.rollouts.spec import LabelStep, Step
from controlplane.rollouts.stepping import (
    Awaited,
    Bake,
    Candidate,
    CheckIntegrity,
    Finish,
    GoBack,
    Pause,
    Reach,
    RolloutView,
    Wait,
    decide,
    next_step,
    reached_at,
    traffic_share,
)

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
CANARY = LabelStep(labels={"tier": "canary"})


def engines(number: int, **labels: str) -> list[Candidate]:
    return [Candidate(f"agent-{one}", "engine", labels) for one in range(1, number + 1)]


def reached(step: int, candidates: list[Candidate], *already: str, steps: tuple[Step, ...] = (10, 50, 100)) -> set[str]:
    return set(reached_at(steps, step, candidates, already, seed="seed"))


# Whom it reaches


@pytest.mark.parametrize(
    ("number", "counts"), [(1, (1, 1, 1)), (2, (1, 1, 2)), (3, (1, 2, 3)), (10, (1, 5, 10)), (25, (3, 13, 25))]
)
def test_shares_are_rounded_up_and_leave_one_to_compare_with(number: int, counts: tuple[int, int, int]) -> None:
    found: set[str] = set()
    sizes = []
    for step in range(3):
        found = reached(step, engines(number), *found)
        sizes.append(len(found))
    assert tuple(sizes) == counts


@given(st.integers(1, 40), st.lists(st.integers(1, 99), unique=True, max_size=5), st.text(max_size=5))
def test_nobody_who_is_reached_is_given_back_and_the_last_step_is_everybody(
    number: int, shares: list[int], seed: str
) -> None:
    steps, already = (*sorted(shares), 100), frozenset[str]()
    for step in range(len(steps)):
        found = reached_at(steps, step, engines(number), already, seed=seed)
        assert already <= found
        already = found
    assert already == {one.agent for one in engines(number)}


def test_another_rollout_begins_with_other_engines() -> None:
    firsts = {reached_at((10, 100), 0, engines(10), (), seed=str(seed)) for seed in range(30)}
    assert len(firsts) > 3


def test_labels_reach_those_that_have_all_of_them() -> None:
    labelled = [Candidate("a", "engine", {"tier": "canary", "zone": "eu"}), Candidate("b", "engine", {"zone": "eu"})]
    assert reached(0, labelled, steps=(CANARY, 100)) == {"a"}


def test_a_share_behind_labels_counts_those_that_are_reached_already() -> None:
    labelled = [*engines(3, tier="canary"), Candidate("x", "engine", {}), Candidate("y", "engine", {})]
    first = reached(0, labelled, steps=(CANARY, 20, 80, 100))
    assert reached(1, labelled, *first, steps=(CANARY, 20, 80, 100)) == first
    assert len(reached(2, labelled, *first, steps=(CANARY, 20, 80, 100))) == 4


def test_gateways_hold_the_newest_from_the_first_step_on_and_are_no_share_of_it() -> None:
    fleet = [*engines(4), Candidate("gateway-1", "gateway", {})]
    found = reached(0, fleet, steps=(50, 100))
    assert "gateway-1" in found
    assert len(found) == 3


def test_an_agent_that_is_gone_is_not_reached() -> None:
    assert "agent-9" not in reached(1, engines(4), "agent-9")


def test_the_share_of_requests_is_the_steps_own_or_that_of_the_labelled() -> None:
    assert traffic_share((10, 100), 0, reached=1, engines=2) == 0.1
    assert traffic_share((CANARY, 100), 0, reached=1, engines=4) == 0.25


def fleet(*sizes: int) -> list[Candidate]:
    """Groups of so many engines each."""
    return [
        Candidate(f"agent-{group}-{number}", "engine", {}, group)
        for group, size in enumerate(sizes, start=1)
        for number in range(size)
    ]


def by_group(candidates: list[Candidate], found: set[str], groups: int) -> list[int]:
    return [sum(one.group == group and one.agent in found for one in candidates) for group in range(1, groups + 1)]


def test_every_group_has_canaries_of_its_own_and_one_left_to_compare_with() -> None:
    candidates = fleet(8, 2, 3)
    assert by_group(candidates, reached(0, candidates), 3) == [1, 1, 1]
    assert by_group(candidates, reached(0, candidates, steps=(90, 100)), 3) == [7, 1, 2]


def test_an_engine_that_is_alone_in_its_group_waits_for_the_last_step(subtests: pytest.Subtests) -> None:
    for seed in range(20):
        with subtests.test(msg=repr(seed)):
            candidates = fleet(8, 1)
            assert by_group(candidates, set(reached_at((10, 100), 0, candidates, (), seed=str(seed))), 2) == [1, 0]
            assert by_group(candidates, reached(2, candidates), 2) == [8, 1]


def test_where_every_group_has_one_engine_some_of_them_are_compared_with_the_others() -> None:
    assert len(reached(1, fleet(1, 1, 1, 1))) == 2


# What it does next

KEPT = Finding("hit_ratio_drop", 0.7, 0.7, 0.05, "kept", "hit ratio 70.0% against 70.0% elsewhere")
BREACHED = replace(KEPT, verdict="breached", words="hit ratio 10.0% against 70.0% elsewhere")
LITTLE = replace(KEPT, verdict="too little", words="3 requests on reached agents")


def view(**changes: Any) -> RolloutView:
    """A canary on one of four engines, at the end of a bake in which everything went well."""
    usual = RolloutView(
        is_paused=False,
        strategy="canary",
        steps=(25, 50, 100),
        step=0,
        reached=frozenset({"agent-1"}),
        bake_seconds=60,
        baking_since=NOW - timedelta(seconds=60),
        seed="seed",
        candidates=engines(4),
        findings=(KEPT,),
        checks_integrity=True,
        integrity="passed",
    )
    return replace(usual, **changes)


def test_with_evidence_for_it_it_goes_on_at_the_end_of_the_bake() -> None:
    decision = decide(view(), now=NOW)
    assert isinstance(decision, Reach)
    assert decision.step == 1
    assert len(decision.agents) == 2
    assert "agent-1" in decision.agents


def test_before_the_bake_ends_it_waits() -> None:
    assert decide(view(), now=NOW - timedelta(seconds=1)) == Wait("Step 1 of 3 bakes for 60 s.")


def test_it_bakes_once_everybody_reached_has_acknowledged() -> None:
    waiting = view(baking_since=None, awaited=[Awaited("agent-1", "nothing heard of it for 9 s")])
    expected = Wait("Waiting for agent-1.", "Waiting for agent-1 (nothing heard of it for 9 s).")
    assert decide(waiting, now=NOW) == expected
    assert decide(view(baking_since=None), now=NOW) == Bake()


def test_too_little_evidence_pauses_and_never_promotes() -> None:
    decision = decide(view(findings=(KEPT, LITTLE)), now=NOW)
    assert decision == Pause(
        "Too little evidence at the end of the bake: hit_ratio_drop: 3 requests on reached agents."
    )


def test_a_reached_engine_without_fresh_news_pauses_it() -> None:
    assert isinstance(decide(view(silent=[Awaited("agent-1", "stale")]), now=NOW), Pause)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("when", [NOW, NOW - timedelta(seconds=59)])
def test_a_breach_goes_back_at_once_also_while_it_is_paused(paused: bool, when: datetime) -> None:
    decision = decide(view(findings=(KEPT, BREACHED), is_paused=paused), now=when)
    assert decision == GoBack("Worse than the agents not yet changed: hit ratio 10.0% against 70.0% elsewhere.")


def test_an_agent_that_rejects_it_sends_it_back() -> None:
    decision = decide(view(baking_since=None, rejected=[Awaited("agent-1", "no such format")]), now=NOW)
    assert decision == GoBack("Rejected by agent-1.", "Rejected by agent-1 (no such format).")


@pytest.mark.parametrize(
    ("integrity", "kind"),
    [("not asked", CheckIntegrity), ("running", Wait), ("passed", Reach), ("failed", GoBack), ("unknown", Pause)],
)
def test_integrity_is_asked_last_and_must_be_answered(integrity: str, kind: type) -> None:
    assert isinstance(decide(view(integrity=integrity, integrity_words="agent-1"), now=NOW), kind)


def test_without_an_engine_left_to_check_itself_it_pauses() -> None:
    gone = view(integrity="not asked", candidates=engines(4)[1:])
    assert decide(gone, now=NOW) == Pause("No engine that is reached is left to check itself.")


def test_an_engine_that_was_taken_over_is_waited_for_before_it_goes_on() -> None:
    who = [Awaited("agent-1")]
    assert decide(view(baking_since=None, unheld=who), now=NOW) == Wait("Waiting for agent-1.")
    assert decide(view(unheld=who), now=NOW) == Wait("Waiting for agent-1.")
    assert isinstance(decide(view(unheld=who, silent=who), now=NOW), Pause)


def test_without_that_guard_nobody_is_asked_to_check_themselves() -> None:
    assert isinstance(decide(view(checks_integrity=False, integrity="not asked"), now=NOW), Reach)


def test_at_the_last_step_it_ends_when_everybody_has_acknowledged() -> None:
    last = view(step=2, baking_since=None, findings=())
    assert decide(replace(last, awaited=[Awaited("agent-3")]), now=NOW) == Wait("Waiting for agent-3.")
    assert decide(last, now=NOW) == Finish()


def test_at_once_has_no_guards() -> None:
    at_once = view(strategy="all", steps=(100,), baking_since=None, findings=())
    rejected = replace(at_once, rejected=[Awaited("agent-1", "x")], awaited=[Awaited("agent-1", "x")])
    assert isinstance(decide(rejected, now=NOW), Wait)


def test_of_many_that_are_awaited_some_are_named() -> None:
    many = [Awaited(f"agent-{number}") for number in range(9)]
    decision = decide(view(baking_since=None, awaited=many), now=NOW)
    assert isinstance(decision, Wait)
    assert decision.why.endswith("agent-4 and 4 more.")


def test_a_paused_one_stays_where_it_is() -> None:
    assert decide(view(is_paused=True), now=NOW + timedelta(days=1)) == Wait("")


def test_a_promotion_asks_for_no_evidence() -> None:
    assert isinstance(next_step(view(findings=(LITTLE,), integrity="unknown")), Reach)


@given(
    st.booleans(),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([None, 0, 59, 60, 600]),
    st.lists(st.sampled_from([KEPT, BREACHED, LITTLE]), max_size=3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["not asked", "running", "passed", "failed", "unknown"]),
)
def test_it_never_goes_on_without_a_full_bake_and_every_guard_kept(
    is_paused: bool,
    step: int,
    baked: int | None,
    findings: list[Finding],
    is_awaited: bool,
    is_silent: bool,
    integrity: str,
) -> None:
    who = [Awaited("agent-1")]
    since = None if baked is None else NOW - timedelta(seconds=baked)
    found = view(
        is_paused=is_paused,
        step=step,
        baking_since=since,
        findings=findings,
        awaited=who if is_awaited else [],
        silent=who if is_silent else [],
        integrity=integrity,
    )
    decision = decide(found, now=NOW)
    if isinstance(decision, Reach):
        assert not any((is_paused, is_awaited, is_silent))
        assert baked is not None
        assert baked >= 60
        assert all(one.verdict == "kept" for one in findings)
        assert integrity == "passed"
    if isinstance(decision, Finish):
        assert step == 2
        assert not is_awaited
    if BREACHED in findings or integrity == "failed":
        assert isinstance(decision, GoBack)
