"""A snapshot holds as a whole or not at all, from one step to the next, while others' answers go on."""

from pathlib import Path
from typing import Any

import pytest

from engine_agent.contracts.protocol import HashMismatch, change_between
from engine_agent.engine.errors import BadRequest, RejectedSnapshot, UnknownTenant
from tests.engines.driving import GREEDY, Hands, drive, make_prompt
from tests.engines.snapshots import make_snapshot


def test_a_new_revision_is_named_by_what_is_admitted_after_it(llama: Path) -> None:
    driven = drive(llama)
    before = driven.ask(make_prompt(20), max_tokens=30, **GREEDY)
    driven.engine.step()
    driven.engine.apply(make_snapshot({"one": {"ttl_seconds": 60}}, revisions={"one": 2}))
    after = driven.ask(make_prompt(20, seed=2), max_tokens=1, **GREEDY)
    driven.run()
    assert (before.admissions[0].policy_revision, after.admissions[0].policy_revision) == (1, 2)
    assert before.finish() == "length"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"kv_dtype": "int2"}, r"ns/two\.policy\.kv_dtype: 'int2' is not served here"),
        ({"limit_share": 2}, r"ns/two\.policy: limit_share"),
        ({"reserved_share": 0.9, "pin_share": 0.2}, r"policies: reservations and pins are 110%"),
    ],
)
def test_a_snapshot_of_which_one_part_cannot_be_obeyed_changes_nothing(
    llama: Path, policy: dict[str, Any], said: str
) -> None:
    driven = drive(llama)
    held = driven.engine.tenants.snapshot.hash
    with pytest.raises(RejectedSnapshot, match=said):
        driven.engine.apply(make_snapshot({"one": {"prefix_caching": False}, "two": policy}))
    assert driven.engine.tenants.snapshot.hash == held
    driven.answer(make_prompt(40), max_tokens=1)
    assert driven.ask(make_prompt(40), max_tokens=1).job is not None
    driven.run()
    assert driven.engine.manager.stats("one").counters.cached_tokens == 32  # caching is on, as it was
    with pytest.raises(UnknownTenant):
        driven.ask(make_prompt(10), namespace="two", max_tokens=1)


def test_a_change_is_applied_to_the_state_it_was_made_for_alone(llama: Path) -> None:
    first, second, third = (make_snapshot({"one": {"ttl_seconds": seconds}}) for seconds in (10, 20, 30))
    driven = drive(llama, snapshot=first)
    with pytest.raises(HashMismatch):
        driven.engine.apply(change_between(second, third))
    driven.engine.apply(change_between(first, second))
    driven.engine.apply(change_between(second, third))
    assert driven.engine.tenants.snapshot.hash == third.hash


def test_an_epoch_never_goes_back(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot(epochs={"one": 5}))
    with pytest.raises(RejectedSnapshot, match="epoch 4 is before 5"):
        driven.engine.apply(make_snapshot(epochs={"one": 4}))


def test_a_new_epoch_is_a_purge_with_a_receipt_and_zeroed_pages(llama: Path) -> None:
    driven = drive(llama)
    driven.answer(make_prompt(40), max_tokens=1)
    arena = driven.engine.parts.pages.arena
    assert bool(arena.any())
    (receipt,) = driven.engine.apply(make_snapshot(epochs={"one": 2}))
    driven.engine.tick()
    assert (receipt.namespace, receipt.epoch, receipt.blocks, receipt.is_done) == ("one", 2, 2, True)
    assert driven.engine.manager.stats("one").resident_bytes == 0
    again = driven.ask(make_prompt(40), max_tokens=1)
    driven.run()
    assert again.cached_tokens == 0
    assert again.admissions[0].miss_reason == "purged"


def test_a_purge_while_an_answer_runs_is_done_when_it_has_ended(llama: Path) -> None:
    driven = drive(llama)
    runs = driven.ask(make_prompt(40), max_tokens=20, **GREEDY)
    alone = drive(llama).answer(make_prompt(40), max_tokens=20, **GREEDY)
    for _ in range(4):
        driven.engine.step()
    (receipt,) = driven.engine.apply(make_snapshot(epochs={"one": 2}))
    assert not receipt.is_done
    driven.run()
    (done,) = driven.engine.manager.take_receipts()
    assert done.is_done
    assert done.blocks >= 3
    assert runs.tokens() == alone  # and nobody notices
    driven.settle()


def test_who_waits_in_a_namespace_that_goes_is_told_so_and_who_runs_may_finish(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}}), most_running=1)
    runs = driven.ask(make_prompt(20), max_tokens=10, **GREEDY)
    waits = driven.ask(make_prompt(20, seed=2), max_tokens=10, **GREEDY)
    driven.engine.step()
    driven.engine.apply(make_snapshot({"two": {}}))
    driven.run()
    assert runs.finish() == "length"
    assert isinstance(waits.error, UnknownTenant)
    assert not driven.engine.has_work
    assert driven.engine.manager.check_integrity() == []


def test_a_suspended_organisation_is_not_served(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot(suspended=["one"]))
    with pytest.raises(UnknownTenant, match="suspended"):
        driven.ask(make_prompt(10), max_tokens=1)


def test_what_a_policy_says_for_this_model_goes_before_what_it_says_for_all(llama: Path) -> None:
    of_model = {"kv_dtype": "int8", "request_kv_dtypes": [], "ttl_seconds": 5}
    driven = drive(llama, snapshot=make_snapshot({"one": {"models": {"model": of_model, "other": {"kv_dtype": "x"}}}}))
    heard = driven.ask(make_prompt(20), max_tokens=1)
    driven.run()
    assert heard.admissions[0].kv_dtype == "int8"
    assert driven.engine.tenants.tenant("one").policy.ttl_seconds == 5


def test_pins_are_computed_where_they_are_not_resident_and_survive_a_flood(llama: Path) -> None:
    snapshot = make_snapshot({"one": {"pin_share": 0.5}}, pins={"p": "one"})
    driven = drive(llama, snapshot=snapshot, pool_pages=40)
    prefix = make_prompt(70)
    assert [pin["state"] for pin in driven.engine.pins.status()] == ["content_missing"]
    driven.engine.pins.set_content("p", prefix)
    driven.engine.tick()
    driven.run()
    (pin,) = driven.engine.pins.status()
    assert (pin["state"], pin["resident_blocks"], pin["wanted_blocks"]) == ("active", 4, 4)
    for seed in range(2, 12):
        driven.answer(make_prompt(200, seed=seed), max_tokens=1)
    hit = driven.ask([*prefix[:64], 5, 6, 7], max_tokens=1)
    driven.run()
    assert hit.cached_tokens == 64
    counters = driven.engine.manager.stats("one").counters
    assert counters.requests == 11  # a warm-up is nobody's request


def test_a_pin_is_computed_again_after_a_purge_that_keeps_it(llama: Path) -> None:
    def snapshot(epoch: int) -> Any:
        return make_snapshot({"one": {"pin_share": 0.5}}, pins={"p": "one"}, epochs={"one": epoch})

    driven = drive(llama, snapshot=snapshot(1))
    driven.engine.pins.set_content("p", make_prompt(70))
    driven.engine.tick()
    driven.run()
    driven.engine.apply(snapshot(2))
    assert driven.engine.pins.status()[0]["resident_blocks"] == 0
    driven.engine.tick()
    driven.run()
    assert driven.engine.pins.status()[0]["resident_blocks"] == 4


def test_a_pin_beyond_its_budget_says_so(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {"pin_share": 0.01}}, pins={"p": "one"}))
    driven.engine.pins.set_content("p", make_prompt(200))
    (pin,) = driven.engine.pins.status()
    assert pin["state"] == "over_budget"
    assert "budget" in pin["problem"]


def test_who_waits_is_admitted_under_the_policy_that_holds_by_then(llama: Path) -> None:
    driven = drive(llama, most_running=1)
    driven.ask(make_prompt(20), max_tokens=10, **GREEDY)
    usual = driven.ask(make_prompt(20, seed=2), max_tokens=1, **GREEDY)
    forbidden = driven.ask(make_prompt(20, seed=3), max_tokens=1, **GREEDY, asked={"kv_dtype": "int4"})
    driven.engine.step()
    snapshot = make_snapshot({"one": {"kv_dtype": "int8", "request_kv_dtypes": []}}, revisions={"one": 2})
    driven.engine.apply(snapshot)
    driven.run()
    assert (usual.admissions[0].kv_dtype, usual.admissions[0].policy_revision) == ("int8", 2)
    assert isinstance(forbidden.error, BadRequest)
    driven.settle()


def test_who_waits_while_its_organisation_is_suspended_is_not_served(llama: Path) -> None:
    driven = drive(llama, most_running=1)
    driven.ask(make_prompt(20), max_tokens=10, **GREEDY)
    waits = driven.ask(make_prompt(20, seed=2), max_tokens=1, **GREEDY)
    driven.engine.step()
    driven.engine.apply(make_snapshot(suspended=["one"]))
    driven.run()
    assert isinstance(waits.error, UnknownTenant)


def test_a_tenants_own_pins_hold_up_nobody_else(llama: Path) -> None:
    snapshot = make_snapshot({"one": {"pin_share": 0.5}, "two": {}}, pins={"p": "one"})
    driven = drive(llama, snapshot=snapshot, pool_pages=100, clock=(clock := Hands()))
    driven.engine.pins.set_content("p", make_prompt(45 * 16))
    driven.engine.tick()
    driven.run()
    never = driven.ask(make_prompt(58 * 16 - 5, seed=2), max_tokens=1, **GREEDY)
    driven.engine.step()
    clock.now += 60
    other = driven.ask(make_prompt(20, seed=3), namespace="two", max_tokens=1, **GREEDY)
    for _ in range(4):
        driven.engine.step()
    assert other.is_over
    assert not never.is_over


def test_a_pins_warm_up_holds_up_no_customer(llama: Path) -> None:
    snapshot = make_snapshot({"one": {"pin_share": 0.5}, "two": {}, "three": {}}, pins={"p": "one"})
    driven = drive(llama, snapshot=snapshot, pool_pages=60, clock=(clock := Hands()))
    runs = driven.ask(make_prompt(30 * 16, seed=5), namespace="three", max_tokens=100, **GREEDY)
    for _ in range(3):
        driven.engine.step()
    driven.engine.pins.set_content("p", make_prompt(30 * 16))
    driven.engine.step()
    clock.now += 60
    customer = driven.ask(make_prompt(20, seed=3), namespace="two", max_tokens=1, **GREEDY)
    for _ in range(4):
        driven.engine.step()
    assert customer.is_over
    assert not runs.is_over
