"""vLLM's block pool obeys: each field of a policy, as for our own engine, in vLLM's real scheduler."""

import pytest

from tests.vllm.inside.scheduling import BLOCK, World, prompt

SHORT = {"ttl_seconds": 10}


def test_a_hit_is_all_full_blocks_but_the_last_token() -> None:
    world = World({"acme": {}})
    assert world.run(prompt(4, extra=0))["cached_tokens"] == 0
    assert world.run(prompt(4, extra=0))["cached_tokens"] == 3 * BLOCK
    assert world.run(prompt(4, extra=5))["cached_tokens"] == 4 * BLOCK
    assert world.run(prompt(2, extra=1))["cached_tokens"] == 2 * BLOCK


def test_an_answer_is_a_prefix_of_what_follows_it() -> None:
    world = World({"acme": {}})
    first = prompt(2)
    request = world.request(first, max_tokens=2 * BLOCK)
    world.until_idle()
    following = [*request.all_token_ids, 5]
    assert world.run(following)["cached_tokens"] == 4 * BLOCK


def test_who_comes_with_another_finds_what_that_one_computed_while_the_step_had_no_tokens_left() -> None:
    world = World({"acme": {}}, budget=4 * BLOCK)
    first, second = world.request(prompt(8, extra=1)), world.request(prompt(8, extra=1))
    world.until_idle()
    assert world.admission(first)["cached_tokens"] == 0
    assert world.admission(second)["cached_tokens"] == 8 * BLOCK


def test_two_namespaces_never_meet() -> None:
    world = World({"acme": {}, "bolt": {}})
    world.run(prompt(4))
    assert world.run(prompt(4), "bolt")["cached_tokens"] == 0
    assert world.run(prompt(4))["cached_tokens"] == 4 * BLOCK


def test_a_clients_own_salt_is_apart() -> None:
    world = World({"acme": {}})
    world.run(prompt(4), salt="aa")
    assert world.run(prompt(4))["cached_tokens"] == 0
    assert world.run(prompt(4), salt="bb")["cached_tokens"] == 0
    assert world.run(prompt(4), salt="aa")["cached_tokens"] == 4 * BLOCK


def test_a_hit_renews_a_sliding_ttl() -> None:
    world = World({"acme": SHORT})
    world.run(prompt(4))
    for _ in range(3):
        world.clock.now += 9
        assert world.run(prompt(4))["cached_tokens"] == 4 * BLOCK
    world.clock.now += 10
    told = world.run(prompt(4))
    assert (told["cached_tokens"], told["miss_reason"]) == (0, "expired")


def test_no_hit_renews_an_absolute_ttl_and_what_is_computed_again_is_found_again() -> None:
    """Trap 1: an expired block does not stand before its successor."""
    world = World({"acme": {**SHORT, "ttl_mode": "absolute"}})
    world.run(prompt(4))
    world.clock.now += 9
    assert world.run(prompt(4))["cached_tokens"] == 4 * BLOCK
    world.clock.now += 1
    assert world.run(prompt(4))["miss_reason"] == "expired"
    assert world.run(prompt(4))["cached_tokens"] == 4 * BLOCK


def test_a_running_answer_does_not_expire_its_own_prompt() -> None:
    """Trap 6: sliding begins at the last release."""
    world = World({"acme": SHORT})
    world.request(prompt(4), max_tokens=20)
    for _ in range(10):
        world.step()
        world.clock.now += 5
    world.until_idle()
    world.clock.now += 9
    assert world.cached(prompt(4)) == 4 * BLOCK


def test_nothing_is_older_than_its_most() -> None:
    world = World({"acme": {**SHORT, "max_age_seconds": 15}})
    world.run(prompt(4))
    world.clock.now += 8
    assert world.run(prompt(4))["cached_tokens"] == 4 * BLOCK
    world.clock.now += 7
    assert world.run(prompt(4))["miss_reason"] == "expired"


def test_a_requests_own_ttl_only_shortens() -> None:
    world = World({"acme": SHORT})
    world.run(prompt(4), ttl_seconds=3)
    world.run(prompt(4, seed=1), ttl_seconds=300)
    world.clock.now += 3
    assert world.cached(prompt(4)) == 0
    world.clock.now += 7
    assert world.cached(prompt(4, seed=1)) == 0


def test_caching_that_is_off_keeps_nothing() -> None:
    world = World({"acme": {"prefix_caching": False}})
    world.run(prompt(4))
    told = world.run(prompt(4))
    assert (told["cached_tokens"], told["miss_reason"]) == (0, "disabled")
    assert world.resident() == 0


def test_a_limit_costs_its_own_namespace_alone() -> None:
    """Traps 3 and 7: whole old chains go, and what is new is found."""
    world = World({"acme": {"limit_share": 0.25}, "bolt": {}}, blocks=64)
    world.run(prompt(8), "bolt")
    for seed in range(1, 6):
        world.run(prompt(6, seed=seed))
        assert world.resident() <= 16
    assert world.cached(prompt(6, seed=5)) == 6 * BLOCK
    assert world.run(prompt(6, seed=1))["miss_reason"] == "quota"
    assert world.run(prompt(8), "bolt")["cached_tokens"] == 8 * BLOCK


def test_a_limit_lowered_while_answers_run_holds_when_they_end() -> None:
    world = World({"acme": {}}, blocks=64)
    world.run(prompt(20, seed=1))
    world.request(prompt(10), max_tokens=4)
    world.step()
    world.set_policy("acme", {"limit_share": 0.1})
    world.until_idle()
    assert world.resident() <= 6


def test_a_flood_takes_no_reserved_block() -> None:
    world = World({"acme": {"reserved_share": 0.25}, "flood": {}}, blocks=64)
    world.run(prompt(12))
    for seed in range(1, 40):
        world.run(prompt(14, seed=seed), "flood")
    assert world.cached(prompt(12)) == 12 * BLOCK
    assert world.manager.stats("flood").counters.evicted_blocks > 0


def test_weights_share_what_is_contended() -> None:
    world = World({"heavy": {"weight": 3}, "light": {}}, blocks=64)
    for seed in range(1, 30):
        world.run(prompt(5, seed=2 * seed), "heavy")
        world.run(prompt(5, seed=2 * seed + 1), "light")
    assert world.resident("heavy") > 2 * world.resident("light")
    assert world.resident("light") >= 10


def test_a_flood_of_waiting_requests_does_not_hold_up_a_neighbour() -> None:
    world = World({"acme": {}, "flood": {"limit_share": 0.5}}, blocks=64, seats=4)
    for seed in range(1, 30):
        world.request(prompt(10, seed=seed), "flood", max_tokens=30)
    world.step()
    request = world.request(prompt(4))
    for _ in range(40):
        world.step()
        if request.is_finished():
            break
    assert request.is_finished()
    assert len(world.scheduler.waiting) > 10, "the flood waits still"


def test_who_is_at_its_limit_preempts_nobody_else() -> None:
    world = World({"acme": {}, "flood": {"limit_share": 0.25}}, blocks=64)
    for seed in range(1, 4):
        world.request(prompt(4, seed=seed), "flood", max_tokens=60)
    other = world.request(prompt(10), max_tokens=100)
    world.until_idle()
    assert world.scheduler.preemptions > 0
    assert other.num_preemptions == 0


def test_who_gave_way_gets_its_answer_and_its_counts_stay() -> None:
    world = World({"acme": {}}, blocks=16)
    world.run(prompt(2))
    requests = [world.request(prompt(2, extra=3 + one), max_tokens=100) for one in range(3)]
    world.until_idle(steps=5000)
    assert sum(request.num_preemptions for request in requests) > 0
    assert [request.num_output_tokens for request in requests] == [100] * 3
    assert [world.admission(request)["cached_tokens"] for request in requests] == [2 * BLOCK] * 3
    assert world.manager.stats("acme").counters.requests == 4


def test_what_could_never_fit_is_refused_with_both_sizes() -> None:
    world = World({"acme": {"limit_share": 0.1}}, blocks=64)
    request = world.request(prompt(10), max_tokens=4)
    assert request.is_finished()
    kind, field, said = world.refusal(request)
    assert (kind, field) == ("Overlong", "prompt")
    assert "MiB of" in said
    request = world.request(prompt(2), max_tokens=100, room_for_tokens=100)
    assert world.refusal(request)[:2] == ["Overlong", "max_tokens"]


def test_who_waits_and_can_never_run_any_more_is_told_though_nothing_else_runs() -> None:
    world = World({"acme": {}}, blocks=64)
    request = world.request(prompt(10), max_tokens=4)
    world.set_policy("acme", {"limit_share": 0.05})
    world.until_idle()
    assert world.refusal(request)[:2] == ["Overlong", "prompt"]
    assert request.is_finished()
    assert not world.scheduler.has_requests()


def test_whose_namespace_is_gone_while_it_waits_is_told_so() -> None:
    world = World({"acme": {}}, blocks=64)
    request = world.request(prompt(4))
    world.manager.remove_namespace("acme")
    world.until_idle()
    assert world.refusal(request) == ["UnknownTenant", "", "the namespace is gone"]


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in-step", "ahead"])
def test_a_limit_lowered_below_an_answer_under_way_ends_that_one_alone(runs_ahead: bool) -> None:
    world = World({"acme": {}, "bolt": {}}, blocks=64, runs_ahead=runs_ahead)
    cut = world.request(prompt(4), max_tokens=100)
    others = [world.request(prompt(2, seed=seed), "bolt", max_tokens=60) for seed in (1, 2)]
    for _ in range(4):
        world.step()
    world.set_policy("acme", {"limit_share": 0.05})
    world.until_idle()
    assert cut.get_finished_reason().name == "LENGTH"
    assert 3 <= cut.num_output_tokens < 2 * BLOCK
    assert [(one.num_preemptions, one.num_output_tokens) for one in others] == [(0, 60), (0, 60)]
    assert world.core.preemptions == 0, "it was cut, and nobody is computed again"


def test_an_answer_that_could_never_return_ends_where_it_is() -> None:
    world = World({"acme": {}, "bolt": {"reserved_share": 0.5}}, blocks=32)
    other = world.request(prompt(2, seed=1), "bolt", max_tokens=350)
    request = world.request(prompt(4), max_tokens=400)
    world.until_idle()
    assert other.num_output_tokens == 350
    assert request.get_finished_reason().name == "LENGTH"
    assert 200 < request.num_output_tokens < 250
    assert (world.core.preemptions, world.governor.notices.counts) == (0, {"answer_cut": 1})


def test_an_answer_alone_in_a_pool_too_small_for_it_ends_there() -> None:
    world = World({"acme": {}}, blocks=8)
    request = world.request(prompt(4), max_tokens=400)
    world.until_idle()
    assert 30 < request.num_output_tokens <= 8 * BLOCK
    assert request.get_finished_reason().name == "LENGTH"
    assert world.core.preemptions == 0, "it was cut, and nobody is computed again"
    assert not world.manager.pool().sequences


@pytest.mark.parametrize("extra", ["flood", "reset"])
def test_a_pin_survives(extra: str) -> None:
    """Trap 2: it is within a budget, and a whole reset does not fail for it."""
    world = World({"acme": {"pin_share": 0.25, **SHORT}, "flood": {}}, blocks=64)
    pinned = prompt(6)
    world.manager.pin("p", "acme", pinned, kv_format="fp8_e4m3", model_revision="r")
    world.run(pinned)
    if extra == "flood":
        world.clock.now += 1000
        for seed in range(1, 40):
            world.run(prompt(14, seed=seed), "flood")
        assert world.run(pinned)["cached_tokens"] == 6 * BLOCK
    else:
        assert world.scheduler.reset_prefix_cache()
        assert world.run(pinned)["miss_reason"] == "disabled"
        world.clock.now += 1000
        assert world.run(pinned)["cached_tokens"] == 6 * BLOCK


def test_a_purge_while_answers_run_has_a_receipt_when_they_end() -> None:
    """Traps 4 and 5: nothing of before matches, and what was in use is counted when it is let go."""
    world = World({"acme": {"pin_share": 0.2}, "bolt": {}}, blocks=64)
    world.run(prompt(4, seed=1))
    world.run(prompt(4, seed=1), "bolt")
    running = world.request(prompt(4), max_tokens=20)
    world.step()
    world.purge("acme")
    assert world.cached(prompt(4, seed=1)) == 0
    told = world.run(prompt(4, seed=1))
    assert told["miss_reason"] == "purged"
    world.until_idle()
    assert running.num_output_tokens == 20
    (receipt,) = world.manager.take_receipts()
    assert receipt.is_done
    assert receipt.blocks >= 4 + 4
    assert world.run(prompt(4, seed=1), "bolt")["cached_tokens"] == 4 * BLOCK


def test_what_a_purge_lets_go_within_a_step_is_zeroed_before_anybody_computes_into_it() -> None:
    world = World({"acme": {}, "bolt": {}}, blocks=16)
    other = world.request(prompt(4), "bolt", max_tokens=100)
    purged = world.request(prompt(8), max_tokens=60)
    world.step()
    world.purge("acme")
    while not purged.num_preemptions:
        assert not world.workers.zeroed
        world.step()
    assert len(world.workers.zeroed) >= 8, "zeroed in the step that let go of it"
    world.until_idle()
    assert (other.num_output_tokens, purged.num_output_tokens) == (100, 60)


def test_what_was_purged_is_zeroed_where_nothing_runs_and_before_its_receipt_is_told() -> None:
    world = World({"acme": {}, "bolt": {}}, blocks=64)
    for name, verb in (("acme", "tick"), ("bolt", "receipts")):
        answering = world.request(prompt(4), name, max_tokens=3)
        world.step()
        world.purge(name)
        before = len(world.workers.zeroed)
        world.abort(answering)
        assert len(world.workers.zeroed) == before, "it was zeroed by somebody else"
        world.core.ask(verb)
        assert len(world.workers.zeroed) - before >= 4


def test_a_receipt_of_what_was_in_use_comes_when_its_pages_are_zeroed() -> None:
    world = World({"acme": {}}, blocks=64)
    world.request(prompt(4), max_tokens=3)
    world.step()
    world.purge("acme")
    world.until_idle()
    begun, ended = world.core.ask("receipts")["ok"]
    assert (begun["is_done"], ended["is_done"]) == (False, True)
    assert len(world.workers.zeroed) == ended["blocks"]


def test_reasons_say_who_needed_the_room() -> None:
    world = World({"acme": {}, "flood": {}}, blocks=32)
    world.run(prompt(20))
    world.run(prompt(18, seed=1), "flood")
    told = world.run(prompt(20))
    assert told["miss_reason"] == "evicted"
    pairs = world.manager.ledger.pairs()
    assert any((pair.victim, pair.by) == ("acme", "flood") for pair in pairs)


def test_another_agents_match_is_why_it_missed_here() -> None:
    world = World({"acme": {}})
    assert world.run(prompt(4), elsewhere_tokens=2 * BLOCK)["miss_reason"] == "other-agent"


def test_another_format_is_why_it_missed() -> None:
    world = World({"acme": {"request_kv_dtypes": ["fp8"]}})
    world.run(prompt(4))
    told = world.run(prompt(4), kv_format="fp8")
    assert (told["miss_reason"], told["kv_dtype"]) == ("dtype", "fp8_e4m3")


def test_a_format_the_policy_does_not_allow_is_refused() -> None:
    world = World({"acme": {}})
    kind, field, said = world.refusal(world.request(prompt(4), kv_format="int4"))
    assert (kind, field) == ("BadRequest", "kv_cache_dtype")
    assert "int4" in said


def test_counts_and_reuse_gaps_are_each_namespaces() -> None:
    world = World({"acme": {}, "bolt": {}})
    for _ in range(4):
        world.run(prompt(4))
        world.clock.now += 100
    counters = world.manager.stats("acme").counters
    assert (counters.requests, counters.prompt_tokens, counters.cached_tokens) == (4, 4 * 65, 3 * 64)
    assert world.manager.stats("bolt").counters.requests == 0
    assert world.manager.what_if("acme", ttl_seconds=50) == 0
    assert world.manager.what_if("acme", ttl_seconds=150) == pytest.approx(3 * 64 / (4 * 65))


def test_blocks_computed_twice_at_once_are_kept_once_and_no_table_changes() -> None:
    """The second finds the prompt that the first computes; what both answer they compute side by side."""
    world = World({"acme": {}}, blocks=64)
    first, second = world.request(prompt(4), max_tokens=40), world.request(prompt(4), max_tokens=20)
    world.until_idle()
    assert first.num_output_tokens == 40
    assert second.num_output_tokens == 20
    assert world.cached(prompt(4)) == 4 * BLOCK
    assert world.manager.stats("acme").counters.shared_blocks > 0


def test_an_aborted_request_leaves_nothing_in_use() -> None:
    world = World({"acme": {}}, blocks=16)
    waiting = [world.request(prompt(8, seed=seed), max_tokens=50) for seed in range(4)]
    world.step()
    for request in waiting:
        world.abort(request)
    assert not world.manager.pool().sequences
    assert len(world.scheduler.waiting) == 0
    world.check()


def test_the_scheduler_that_runs_ahead_of_a_gpu_obeys_as_well() -> None:
    world = World({"acme": {"limit_share": 0.5, **SHORT}, "bolt": {}}, blocks=48, runs_ahead=True)
    for seed in range(6):
        for name in ("acme", "bolt"):
            world.request(prompt(3 + seed % 2, seed=seed % 3), name, max_tokens=5 + 20 * (seed % 2))
    world.until_idle()
    assert world.resident() <= 24
    assert world.cached(prompt(3), "bolt") == 3 * BLOCK
    world.clock.now += 10
    assert world.run(prompt(3))["miss_reason"] == "expired"
