"""Who computes and who waits: priorities, seats, preemption, deadlines, draining, and what fails alone."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine_agent.engine.errors import (
    BadRequest,
    DeadlinePassed,
    EngineFailed,
    Overloaded,
    Overlong,
    PagesFailed,
    UnknownTenant,
)
from engine_agent.engine.params import BeamParams
from engine_agent.engine.tenants import NOBODY
from tests.engines.driving import GREEDY, Hands, drive, make_prompt
from tests.engines.snapshots import EXACT, make_snapshot


def test_the_request_that_matters_more_starts_first_in_its_own_namespace(llama: Path) -> None:
    driven = drive(llama, most_running=1)
    first = driven.ask(make_prompt(20), max_tokens=4, **GREEDY)
    later = driven.ask(make_prompt(20, seed=2), max_tokens=4, **GREEDY, asked={"priority": 0})
    urgent = driven.ask(make_prompt(20, seed=3), max_tokens=4, **GREEDY, asked={"priority": -5})
    driven.run(first)
    driven.run(urgent)
    assert not later.admissions
    driven.run()
    assert later.is_over


def test_a_priority_gives_nothing_over_another_namespace(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}}), chunk_tokens=16)
    loud = driven.ask(make_prompt(200), max_tokens=1, **GREEDY, asked={"priority": -100})
    quiet = driven.ask(make_prompt(30, seed=2), namespace="two", max_tokens=1, **GREEDY)
    driven.run(quiet)
    assert not loud.is_over


def test_a_flood_of_long_prompts_delays_another_tenant_by_two_chunks_at_most(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"noisy": {}, "quiet": {}}), chunk_tokens=64, pool_pages=1000)
    for number in range(8):
        driven.ask(make_prompt(800, seed=number), namespace="noisy", max_tokens=4, **GREEDY)
    for _ in range(5):
        driven.engine.step()
    quiet = driven.ask(make_prompt(40, seed=99), namespace="quiet", max_tokens=1, **GREEDY)
    steps = 0
    while not quiet.is_over:
        driven.engine.step()
        steps += 1
    assert steps <= 3  # one that was being planned, and two of its own: half a chunk, and the rest


def test_no_step_computes_more_than_a_chunk(llama: Path) -> None:
    driven = drive(llama, chunk_tokens=32)
    for number in range(6):
        driven.ask(make_prompt(100, seed=number), max_tokens=8, **GREEDY)
    while driven.engine.has_work:
        assert driven.engine.step() <= 32


def test_answers_that_fill_a_step_leave_a_prompt_its_quantum(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {}, "two": {}}), chunk_tokens=8, most_running=16)
    for number in range(8):
        driven.ask(make_prompt(10, seed=number), max_tokens=200, **GREEDY)
    for _ in range(20):
        driven.engine.step()
    other = driven.ask(make_prompt(10, seed=99), namespace="two", max_tokens=1, **GREEDY)
    steps = 0
    while not other.is_over:
        driven.engine.step()
        steps += 1
    assert steps <= 7


def test_not_more_answers_run_at_once_than_may(llama: Path) -> None:
    driven = drive(llama, most_running=3)
    heard = [driven.ask(make_prompt(20, seed=number), max_tokens=5, **GREEDY) for number in range(9)]
    while driven.engine.has_work:
        driven.engine.step()
        assert sum(len(request.live) for request in driven.engine.running) <= 3
    assert all(one.finish() == "length" for one in heard)


@pytest.mark.parametrize("settings", [{"n": 4, "seed": 1}, {"n": 4, "beam": BeamParams(), "temperature": 0.0}])
def test_every_choice_and_every_beam_takes_a_seat(llama: Path, settings: dict[str, Any]) -> None:
    driven = drive(llama, most_running=6)
    heard = [driven.ask(make_prompt(20, seed=number), max_tokens=6, **settings) for number in range(4)]
    while driven.engine.has_work:
        driven.engine.step()
        assert len(driven.engine.running) <= 1
    assert all(one.is_over for one in heard)


def test_a_tenant_of_whom_nothing_runs_gets_a_seat_from_who_has_most(llama: Path) -> None:
    snapshot = make_snapshot({"noisy": {}, "quiet": {}})
    driven = drive(llama, snapshot=snapshot, most_running=4, clock=(clock := Hands()))
    flood = [driven.ask(make_prompt(20, seed=n), namespace="noisy", max_tokens=300, **GREEDY) for n in range(4)]
    driven.engine.step()
    quiet = driven.ask(make_prompt(20, seed=9), namespace="quiet", max_tokens=2, **GREEDY)
    clock.now += 2
    for _ in range(6):
        driven.engine.step()
    assert quiet.is_over
    assert driven.engine.preemptions == 1
    driven.run()
    alone = drive(llama, snapshot=snapshot)
    last = [alone.ask(make_prompt(20, seed=n), namespace="noisy", max_tokens=300, **GREEDY) for n in range(4)]
    alone.run()
    assert [one.tokens() for one in flood] == [one.tokens() for one in last]


def test_the_health_probe_needs_no_seat(llama: Path) -> None:
    driven = drive(llama, most_running=1)
    driven.ask(make_prompt(20), max_tokens=300, **GREEDY)
    driven.engine.step()
    probe = driven.ask([1, 1], namespace=NOBODY, max_tokens=1, asked={"kind": "probe"})
    for _ in range(3):
        driven.engine.step()
    assert probe.is_over


def test_who_was_preempted_is_not_turned_away_because_many_wait(llama: Path) -> None:
    driven = drive(llama, pool_pages=12, most_waiting=2)
    heard = []
    for number in range(4):
        heard.append(driven.ask(make_prompt(30, seed=number), max_tokens=60, **GREEDY))
        driven.engine.step()
        driven.engine.step()
    for number in range(2):
        with suppress(Overloaded):
            heard.append(driven.ask(make_prompt(30, seed=10 + number), max_tokens=60, **GREEDY))
    driven.run()
    assert driven.engine.preemptions > 0
    assert [one.finish() for one in heard] == ["length"] * len(heard)


def test_who_was_preempted_is_not_overtaken_for_ever(llama: Path) -> None:
    snapshot = make_snapshot({"one": {}, "two": {}})
    driven = drive(llama, snapshot=snapshot, pool_pages=40, clock=(clock := Hands()))
    old = driven.ask(make_prompt(300), max_tokens=120, **GREEDY)
    newcomers = [driven.ask(make_prompt(100, seed=n), namespace="two", max_tokens=20, **GREEDY) for n in range(4)]
    for number in range(2_000):
        if old.is_over:
            break
        driven.engine.step()
        clock.now += 0.05
        busy = [one for one in newcomers if not one.is_over]
        fresh = [
            driven.ask(make_prompt(100, seed=10_000 * number + n), namespace="two", max_tokens=20, **GREEDY)
            for n in range(4 - len(busy))
        ]
        newcomers = busy + fresh
    assert old.finish() == "length"


def test_several_answers_that_can_never_return_together_end_instead_of_beginning_again(llama: Path) -> None:
    snapshot = make_snapshot({"one": {"limit_share": 0.25}, "two": {}})
    driven = drive(llama, snapshot=snapshot, pool_pages=100)
    others = [driven.ask(make_prompt(20, seed=n), namespace="two", max_tokens=400, **GREEDY) for n in (7, 8)]
    several = driven.ask(make_prompt(40), n=4, seed=1, ignore_eos=True)
    driven.run(several)
    assert driven.engine.preemptions <= 20
    assert {several.finish(choice) for choice in range(4)} == {"length"}
    assert sum(len(several.tokens(choice)) for choice in range(4)) > 200
    driven.run(*others)
    driven.settle()


def test_a_seed_means_the_same_wherever_a_prompt_stands(llama: Path) -> None:
    driven = drive(llama)
    alone = driven.ask(make_prompt(20, seed=2), max_tokens=10, seed=7, ignore_eos=True)
    batch = driven.ask(make_prompt(20), make_prompt(20, seed=2), max_tokens=10, seed=7, ignore_eos=True)
    driven.run()
    assert batch.tokens(1) == alone.tokens()


@pytest.mark.parametrize("settings", [{"stop": ("a",)}, {"seed": 3}, {"include_stop": True}])
def test_what_does_nothing_in_a_beam_search_is_refused_there(llama: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=next(iter(settings))):
        drive(llama).ask(make_prompt(20), max_tokens=2, n=2, beam=BeamParams(), temperature=0.0, **settings)


def test_a_failure_in_the_pages_is_told_apart_from_a_failed_step(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = drive(llama)
    driven.answer(make_prompt(40), max_tokens=1)

    def broken(operations: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(driven.engine.parts.pages, "run", broken)
    with pytest.raises(PagesFailed, match="no memory"):
        driven.engine.tick()


def test_who_gives_way_is_told_to_operators_with_what_would_help(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = drive(llama, pool_pages=20)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            driven.ask(make_prompt(60, seed=number), max_tokens=120, **GREEDY)
        driven.run()
    assert driven.engine.preemptions > 0
    assert driven.engine.notices.counts["preemption"] == driven.engine.preemptions
    assert "--pool" in caplog.text
    driven.settle()


def test_an_answer_alone_that_the_pool_cannot_hold_ends_where_it_is(llama: Path) -> None:
    driven = drive(llama, pool_pages=8)
    heard = driven.ask(make_prompt(20), **GREEDY)
    driven.run()
    assert heard.finish() == "length"
    assert len(heard.tokens()) > 10
    driven.settle()


def test_what_can_never_fit_is_refused_at_once(llama: Path) -> None:
    driven = drive(llama, pool_pages=8)
    with pytest.raises(Overlong, match="MiB"):
        driven.ask(make_prompt(400), max_tokens=1, **GREEDY)
    with pytest.raises(Overlong, match="max_tokens"):
        driven.ask(make_prompt(10), max_tokens=800, **GREEDY)
    assert not driven.engine.has_work


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(llama: Path) -> None:
    driven = drive(llama, context_tokens=64)
    with pytest.raises(Overlong, match=r"64"):
        driven.ask(make_prompt(64), max_tokens=1)
    with pytest.raises(Overlong, match=r"max_tokens.*60.*10.*64"):
        driven.ask(make_prompt(60), max_tokens=10)


@pytest.mark.parametrize("prompt", [[], [1, 2, 96], [-1]])
def test_tokens_the_model_does_not_have_are_refused(llama: Path, prompt: list[int]) -> None:
    with pytest.raises(BadRequest):
        drive(llama).ask(prompt, max_tokens=1)


def test_a_format_beside_the_policy_is_refused_by_name(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {"kv_dtype": "fp8", "request_kv_dtypes": ["int4"]}}))
    with pytest.raises(BadRequest, match=r"kv_cache_dtype: 'int8' is none of fp8, int4"):
        driven.ask(make_prompt(10), max_tokens=1, asked={"kv_dtype": "int8"})
    assert driven.ask(make_prompt(10), max_tokens=1, asked={"kv_dtype": "int4"}).job is not None


def test_a_namespace_nobody_told_of_is_refused(llama: Path) -> None:
    with pytest.raises(UnknownTenant):
        drive(llama).ask(make_prompt(10), namespace="two", max_tokens=1)


def test_a_deadline_ends_who_waits_and_who_runs(llama: Path) -> None:
    driven = drive(llama, most_running=1, clock=(clock := Hands()))
    runs = driven.ask(make_prompt(20), max_tokens=500, **GREEDY, asked={"deadline_seconds": 5})
    waits = driven.ask(make_prompt(20, seed=2), max_tokens=5, **GREEDY, asked={"deadline_seconds": 3})
    for _ in range(3):
        driven.engine.step()
    clock.now += 4
    driven.engine.step()
    assert isinstance(waits.error, DeadlinePassed)
    assert not waits.admissions
    clock.now += 4
    driven.engine.step()
    assert isinstance(runs.error, DeadlinePassed)
    driven.settle()


def test_more_than_may_wait_are_told_to_come_again(llama: Path) -> None:
    driven = drive(llama, most_running=1, most_waiting=2)
    for number in range(2):
        driven.ask(make_prompt(20, seed=number), max_tokens=1)
    with pytest.raises(Overloaded, match="2 requests wait"):
        driven.ask(make_prompt(20, seed=9), max_tokens=1)
    driven.run()
    driven.settle()


def test_a_batch_of_which_one_prompt_cannot_wait_leaves_nothing_behind(llama: Path) -> None:
    driven = drive(llama, most_waiting=2)
    first = driven.ask(make_prompt(20), max_tokens=1)
    with pytest.raises(Overloaded):
        driven.ask(*[make_prompt(20, seed=number) for number in (2, 3)], max_tokens=1)
    with pytest.raises(BadRequest, match="3 prompts are more than may wait here, 2"):
        driven.ask(*[make_prompt(20, seed=number) for number in range(3)], max_tokens=1)
    driven.run()
    assert first.is_over
    driven.settle()


def test_an_engine_that_drains_finishes_and_takes_nothing_new(llama: Path) -> None:
    driven = drive(llama)
    heard = driven.ask(make_prompt(20), max_tokens=5, **GREEDY)
    driven.engine.is_draining = True
    with pytest.raises(Overloaded, match="drained"):
        driven.ask(make_prompt(20), max_tokens=5)
    driven.run()
    assert heard.finish() == "length"


def test_numbers_that_overflow_fail_their_request_alone(llama: Path) -> None:
    driven = drive(llama)
    driven.engine.parts.model.embedding[95] = float("nan")  # the head has a copy of its own
    poisoned = driven.ask([1, 2, 95, 4, 5], max_tokens=5, **GREEDY)
    sound = driven.ask(make_prompt(20, vocab=90), max_tokens=5, **GREEDY, logit_bias={95: -100.0})
    driven.run()
    assert isinstance(poisoned.error, EngineFailed)
    assert sound.finish() == "length"
    driven.settle()


def test_counts_are_fixed_once_whatever_happens_later(llama: Path) -> None:
    """Preemption and several answers change neither what was admitted nor the namespace's counters."""
    driven = drive(llama, pool_pages=20, snapshot=make_snapshot({"one": dict(EXACT)}))
    heard = [driven.ask(make_prompt(60, seed=number), max_tokens=60, n=2, seed=number) for number in range(4)]
    driven.run()
    assert driven.engine.preemptions > 0
    counters = driven.engine.manager.stats("one").counters
    assert counters.requests == 4
    assert counters.prompt_tokens == sum(one.admissions[0].prompt_tokens for one in heard) == 240
    assert counters.cached_tokens == sum(one.cached_tokens for one in heard)


@pytest.mark.parametrize(
    ("elsewhere", "reason"),
    [(0, "cold"), (64, "cold"), (79, "cold"), (80, "other-agent"), (96, "other-agent"), (10**9, "other-agent")],
)
def test_where_another_engine_had_the_first_missed_block_that_is_the_reason(
    llama: Path, elsewhere: int, reason: str
) -> None:
    driven = drive(llama)
    driven.ask(make_prompt(70), max_tokens=1)
    driven.run()
    heard = driven.ask(make_prompt(70)[:64] + [7] * 36, max_tokens=1, asked={"elsewhere_tokens": elsewhere})
    driven.run()
    assert heard.cached_tokens == 64
    assert (heard.admissions[0].miss_reason, dict(heard.admissions[0].missed)) == (reason, {reason: 32, "tail": 4})


def test_a_full_hit_missed_nothing_wherever_else_it_is(llama: Path) -> None:
    driven = drive(llama)
    for _ in range(2):
        heard = driven.ask(make_prompt(70), max_tokens=1, asked={"elsewhere_tokens": 10**6})
        driven.run()
    assert (heard.cached_tokens, heard.admissions[0].miss_reason) == (64, "none")


def test_where_nothing_is_cached_that_is_the_reason_wherever_else_it_is(llama: Path) -> None:
    driven = drive(llama, snapshot=make_snapshot({"one": {"prefix_caching": False}}))
    heard = driven.ask(make_prompt(70), max_tokens=1, asked={"elsewhere_tokens": 64})
    driven.run()
    assert heard.admissions[0].miss_reason == "disabled"


def test_what_is_known_of_another_engine_is_of_the_first_prompt(llama: Path) -> None:
    driven = drive(llama)
    prompts = (make_prompt(40, seed=1), make_prompt(40, seed=2))
    heard = driven.ask(*prompts, max_tokens=1, asked={"elsewhere_tokens": 32})
    driven.run()
    assert [heard.admissions[place].miss_reason for place in (0, 1)] == ["other-agent", "cold"]


def test_every_missed_token_has_one_reason(llama: Path) -> None:
    driven = drive(llama)
    prompt = make_prompt(70)
    cold = driven.ask(prompt, max_tokens=1)
    driven.run()
    warm = driven.ask(prompt + [7] * 30, max_tokens=1)
    driven.run()
    assert dict(cold.admissions[0].missed) == {"cold": 64, "tail": 6}
    assert warm.cached_tokens == 64
    assert dict(warm.admissions[0].missed) == {"cold": 32, "tail": 4}
    assert warm.admissions[0].miss_reason == "cold"
