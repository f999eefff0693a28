"""What an agent's word is worth: nothing it says ends a step that it does not owe, or counts a block twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.arrivals import MOST, Received
from controlplane.fleet.intake import (
    MOST_AHEAD,
    MOST_RESULT_BYTES,
    STATE,
    Applied,
    Ended,
    Facts,
    Known,
    Proof,
    Rejected,
    WaitingStep,
    intake_plan,
    steps_proved,
)
from engine_agent.contracts.protocol import canonical_json
from engine_agent.contracts.wire import Batch, Report
from tests.database.factories import about_agent

ACME, GLOBEX = 1, 2
OWNERS = {10: ACME, 11: ACME, 20: GLOBEX}
GENERATIONS = {number: f"{number:064x}" for number in range(1, 9)}


def applied(generation: int, hash_: str | None = None) -> Report:
    told = {"generation": generation, "hash": hash_ or GENERATIONS.get(generation, "f" * 64), "at": 0.0}
    return Report("applied", {**told, "engine_boot": "b", "seconds": 0.1})


def rejected(generation: int) -> Report:
    return Report("rejected", {"generation": generation, "hash": GENERATIONS[generation], "at": 0.0, "reason": "full"})


def purged(namespace: int | str, blocks: int, *, epoch: int = 2) -> Report:
    told = {"namespace": str(namespace), "epoch": epoch, "blocks": blocks, "bytes": blocks * 100, "at": 0.0}
    return Report("purged", {**told, "engine_boot": "b"})


def receipt(operation: str, *, ok: bool = True, **result: Any) -> Report:
    return Report("receipt", {"operation": operation, "ok": ok, "at": 0.0, "result": result})


def refused(reason: str, count: int, what: str | None = "x") -> Report:
    return Report("refused", {"reason": reason, "what": what, "at": 0.0, "count": count})


def purge_step(number: int = 1, generation: int | None = 5, **about: int | None) -> WaitingStep:
    return WaitingStep(number, f"op-{number}", STATE, generation, **about)


def known(**fields: Any) -> Known:
    return Known(**{"desired_generation": 8, "generations": GENERATIONS, "organisations": OWNERS, **fields})


def facts(known_before: Known, *reports: Report) -> Facts:
    return intake_plan(Received(), known_before, Batch(0.0, "s", 1, list(reports), None)).facts


def test_an_acknowledgement_of_what_it_was_to_hold_is_believed() -> None:
    assert facts(known(), applied(5)).applied == Applied(5, GENERATIONS[5], True)


@pytest.mark.parametrize("told", [applied(5, "e" * 64), applied(77)])
def test_an_acknowledgement_of_anything_else_is_written_down_and_ends_nothing(told: Report) -> None:
    found = facts(known(steps=[purge_step(generation=1)]), told)
    assert found.applied is not None
    assert not found.applied.is_believed
    assert found.ended == []


def test_a_step_ends_with_the_generation_that_holds_it_and_not_before() -> None:
    step = purge_step(generation=5)
    assert facts(known(steps=[step]), applied(4)).ended == []
    assert facts(known(steps=[step]), applied(5)).ended == [Ended(1, True)]
    assert facts(known(steps=[step]), applied(6)).ended == [Ended(1, True)]


def test_a_step_that_is_not_planned_yet_does_not_end() -> None:
    assert facts(known(steps=[purge_step(generation=None)]), applied(8)).ended == []


def test_a_receipt_adds_up_what_was_proved_of_what_it_is_about() -> None:
    steps = [
        purge_step(1, namespace=10, organisation=ACME),
        purge_step(2, organisation=ACME),
        purge_step(3),
        purge_step(4, namespace=20, organisation=GLOBEX),
    ]
    told = [purged(10, 3), purged(11, 4), purged(10, 1), applied(5)]
    assert facts(known(steps=steps), *told).ended == [
        Ended(1, True, 4, 400),
        Ended(2, True, 8, 800),
        Ended(3, True, 8, 800),
        Ended(4, True, 0, 0),
    ]


def test_what_is_proved_after_an_acknowledgement_belongs_to_the_next() -> None:
    steps = [purge_step(1, 5, namespace=10), purge_step(2, 6, namespace=10)]
    told = [purged(10, 3), applied(5), purged(10, 2), applied(6)]
    assert facts(known(steps=steps), *told).ended == [Ended(1, True, 3, 300), Ended(2, True, 2, 200)]


def test_proofs_wait_for_an_acknowledgement_in_a_later_batch() -> None:
    first = facts(known(), purged(10, 3), purged(11, 1))
    assert first.proofs == (Proof(10, ACME, 2, 3, 300), Proof(11, ACME, 2, 1, 100))
    then = facts(known(steps=[purge_step(namespace=10)], proofs=first.proofs), purged(10, 2, epoch=3), applied(5))
    assert then.ended == [Ended(1, True, 5, 500)]
    assert then.proofs == ()


def test_proofs_that_no_step_was_about_end_with_a_new_state() -> None:
    """Nothing of them may count for a purge that is still to come."""
    found = facts(known(applied_generation=4), purged(10, 3), applied(5), applied(6))
    assert found.proofs is None


def test_an_agent_that_repeats_what_it_holds_keeps_the_proofs_of_what_it_is_coming_to() -> None:
    """It died after its engine purged and before it said so, and begins by saying what it holds."""
    held = known(applied_generation=4, steps=[purge_step(generation=5, namespace=10)])
    found = facts(held, purged(10, 3), applied(4), applied(5))
    assert found.ended == [Ended(1, True, 3, 300)]


def test_a_proof_of_a_namespace_that_nobody_has_counts_nowhere() -> None:
    found = facts(known(steps=[purge_step()]), purged(99, 3), purged("x", 3), purged("9" * 60, 3), applied(5))
    assert found.ended == [Ended(1, True)]
    assert found.dropped == ["purged: there is no such namespace"] * 3


def test_an_older_acknowledgement_that_comes_late_changes_nothing() -> None:
    found = facts(known(applied_generation=6), applied(5))
    assert found.applied is None
    assert found.dropped == ["applied: generation 5 is older than 6"]


def test_an_agent_may_be_ahead_after_a_backup_of_ours_was_brought_back_but_not_absurdly() -> None:
    found = facts(known(), applied(8 + MOST_AHEAD))
    assert found.applied == Applied(8 + MOST_AHEAD, "f" * 64, False)
    found = facts(known(), applied(9 + MOST_AHEAD))
    assert found.applied is None
    assert "beyond any" in found.dropped[0]


def test_a_rejection_stands_until_that_state_is_applied_after_all() -> None:
    assert facts(known(), rejected(5)).rejected == Rejected(GENERATIONS[5], "full")
    healed = facts(known(rejected_hash=GENERATIONS[5]), applied(5))
    assert (healed.rejected, healed.is_rejection_over) == (None, True)
    both = facts(known(), rejected(5), applied(5))
    assert (both.rejected, both.is_rejection_over) == (None, True)
    again = facts(known(), applied(5), rejected(6))
    assert (again.rejected, again.is_rejection_over) == (Rejected(GENERATIONS[6], "full"), False)
    assert not facts(known(rejected_hash=GENERATIONS[5]), applied(6)).is_rejection_over


def owed(number: int = 1, operation: str = "drain-1") -> WaitingStep:
    return WaitingStep(number, operation, "drain")


def test_a_receipt_ends_the_step_that_is_owed_once() -> None:
    told = receipt("drain-1", blocks=2, bytes=20)
    found = facts(known(steps=[owed()]), told, told)
    assert found.ended == [Ended(1, True, 2, 20, result={"blocks": 2, "bytes": 20})]
    assert found.dropped == ["receipt: no such operation waits for this agent"]


def test_a_receipt_says_why_it_could_not_be_done() -> None:
    (ended,) = facts(known(steps=[owed()]), receipt("drain-1", ok=False, why="busy")).ended
    assert (ended.is_done, ended.note, ended.blocks) == (False, "busy", 0)


def test_no_receipt_ends_a_step_that_an_acknowledgement_has_to_end() -> None:
    assert facts(known(steps=[purge_step()]), receipt("op-1")).ended == []


STRANGE: list[dict[str, Any]] = [
    {"why": 7},
    {"blocks": -1},
    {"blocks": True},
    {"bytes": 2**63},
    {"bytes": "9"},
    {"n": float("nan")},
    {"x": "y" * MOST_RESULT_BYTES},
]


@pytest.mark.parametrize("result", STRANGE)
def test_a_receipt_with_a_strange_result_counts_without_it(result: dict[str, Any]) -> None:
    (ended,) = facts(known(steps=[owed()]), receipt("drain-1", **result)).ended
    assert (ended.is_done, ended.blocks, ended.bytes) == (True, 0, 0)


def test_that_a_check_found_something_is_kept_however_much_it_was() -> None:
    problems = [f"4711: run {number} of 12 blocks is held twice and noted once" for number in range(400)]
    (ended,) = facts(known(steps=[owed()]), receipt("drain-1", ok=False, problems=problems)).ended
    assert (ended.is_done, ended.result["problems"][:2], ended.result["problem_count"]) == (False, problems[:2], 400)
    assert len(canonical_json(dict(ended.result))) < MOST_RESULT_BYTES
    (odd,) = facts(known(steps=[owed()]), receipt("drain-1", problems=[["x" * MOST_RESULT_BYTES], 7])).ended
    assert odd.result["problems"] == ["(not a sentence)"] * 2


def test_refusals_add_up_by_reason_and_the_last_is_told() -> None:
    found = facts(known(), refused("forged", 2, "a"), refused("older", 1), refused("forged", 3, None))
    assert found.refused == {"forged": (5, ""), "older": (1, "x")}


def test_a_short_text_that_is_missing_is_none() -> None:
    """Whoever leaves it out is not to have its reports refused for ever."""
    state = {"generation": 5, "hash": GENERATIONS[5], "at": 0.0}
    told = facts(known(), Report("refused", {"reason": "forged", "at": 0.0, "count": 1}), Report("rejected", state))
    assert told.refused == {"forged": (1, "")}
    assert told.rejected == Rejected(GENERATIONS[5], "")


def test_what_it_says_of_itself_is_checked_and_nonsense_left_out() -> None:
    assert facts(known(), Report("about", about_agent(version="9.9"))).about == about_agent(version="9.9")
    found = facts(known(), Report("about", {"backend": "steam"}))
    assert found.about is None
    assert found.dropped[0].startswith("about: ")


def test_sums_stay_within_what_can_be_written_down() -> None:
    huge = Report("purged", {**purged(10, 1).told, "blocks": MOST, "bytes": MOST})
    assert facts(known(), huge, huge).proofs == (Proof(10, ACME, 2, MOST, MOST),)
    assert facts(known(), refused("older", MOST), refused("older", MOST)).refused["older"][0] == MOST


Kinds = st.sampled_from(["purge", "apply", "again"])


@given(st.lists(st.tuples(Kinds, st.sampled_from(sorted(OWNERS)), st.integers(0, 9)), max_size=40), st.data())
def test_cut_into_any_batches_the_same_reports_come_to_the_same(told: list[tuple[str, int, int]], data: Any) -> None:
    """Whatever is stored in between is all that is needed."""
    reports, generation = list[Report](), 1
    for what, namespace, blocks in told:
        generation = min(generation + 1, 8) if what == "apply" else generation
        reports.append(purged(namespace, blocks) if what == "purge" else applied(generation))
    steps = [purge_step(number, number, namespace=10 if number % 2 else None) for number in range(1, 9)]
    at_once = facts(known(steps=steps), *reports).ended
    assert _in_batches(reports, steps, data) == at_once
    assert len({one.step for one in at_once}) == len(at_once)


def _in_batches(reports: list[Report], steps: list[WaitingStep], data: Any) -> list[Ended]:
    received, held, ended, number = Received(), known(steps=steps), list[Ended](), 0
    while number < len(reports):
        size = data.draw(st.integers(1, 5))
        batch = Batch(0.0, "s", number + 1, reports[number : number + size], None)
        intake = intake_plan(received, held, batch)
        number += size
        received = intake.arrival.received
        held = _known_after(held, intake.facts)
        ended += intake.facts.ended
    return ended


def _known_after(held: Known, news: Facts) -> Known:
    over = {one.step for one in news.ended}
    return known(
        applied_generation=news.applied.generation if news.applied else held.applied_generation,
        steps=[step for step in held.steps if step.id not in over],
        proofs=held.proofs if news.proofs is None else news.proofs,
    )


def test_holding_a_state_already_proves_the_steps_that_ask_for_no_more() -> None:
    proofs = [Proof(10, ACME, 2, 3, 300), Proof(20, GLOBEX, 2, 1, 100)]
    steps = [purge_step(1, 5, organisation=ACME), purge_step(2, 6, organisation=GLOBEX)]
    assert steps_proved(steps, proofs, generation=5) == ([Ended(1, True, 3, 300)], [proofs[1]])
