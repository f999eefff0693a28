"""Replays through the real block manager, beside a count without any cleverness, and beside the notes' figures."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine_agent.tools.replay.namespaces import flooded, namespaces_of, only, split
from engine_agent.tools.replay.outcome import Outcome
from engine_agent.tools.replay.policies import Setup, Shares, Ttl
from engine_agent.tools.replay.running import Run, replay
from engine_agent.tools.replay.trace import Request
from tests.unit.replay.brute_force import BruteForce, Served, optimistic_hit_ratio
from tests.unit.replay.examples import BLOCK_TOKENS, made_up, public_trace

TTLS = (Ttl(), Ttl("sliding", 60), Ttl("sliding", 300), Ttl("absolute", 60), Ttl("absolute", 300))
NO_TTL = Ttl()
SHARES: list[dict[str, Shares]] = [
    {},
    {"namespace-0": Shares(weight=3)},
    {"namespace-0": Shares(reserved=0.5), "namespace-1": Shares(reserved=0.25)},
    {"namespace-0": Shares(limit=0.3), "namespace-2": Shares(limit=0.5, weight=0.5)},
    {"namespace-0": Shares(reserved=0.3, limit=0.4, weight=2), "namespace-1": Shares(limit=0.7)},
]
HEAD = 1_000  # of the public trace: enough for blocks to expire and to be evicted


def assert_equal_to_brute_force(requests: Sequence[Request], setup: Setup) -> None:
    """Tokens and reasons, namespace by namespace, and memory: all of it to the token."""
    size = setup.block_tokens
    counted = BruteForce(
        setup.ttl,
        block_tokens=size,
        pool_blocks=setup.pool_tokens // size if setup.pool_tokens else None,
        shares=setup.shares,
        namespaces=namespaces_of(requests),
    )
    served = counted.run(requests)
    outcome = replay(requests, setup)
    assert {name: one.cached_tokens for name, one in outcome.tallies.items()} == {
        name: space.cached_tokens for name, space in counted.spaces.items()
    }
    assert +outcome.total.missed_tokens == missed_tokens(requests, served, size)
    assert outcome.peak_resident_tokens == max(one.pages for one in served) * size


def missed_tokens(requests: Sequence[Request], served: Sequence[Served], size: int) -> Counter[str]:
    missed: Counter[str] = Counter()
    for request, one in zip(requests, served, strict=True):
        matchable = request.input_tokens if one.reason == "refused" else (request.input_tokens - 1) // size * size
        missed[one.reason] += matchable - one.cached_tokens
        missed["tail"] += request.input_tokens - matchable
    return +missed


@pytest.mark.parametrize("pool", [None, 300, 60])
@pytest.mark.parametrize("ttl", TTLS, ids=lambda ttl: ttl.label)
def test_the_manager_serves_what_brute_force_counts(ttl: Ttl, pool: int | None) -> None:
    for seed in range(3):
        requests = made_up(200, seed=seed)
        assert_equal_to_brute_force(requests, Setup(ttl, pool and pool * BLOCK_TOKENS, BLOCK_TOKENS))


@pytest.mark.parametrize("ttl", [Ttl(), Ttl("sliding", 60), Ttl("absolute", 60)], ids=lambda ttl: ttl.label)
@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_with_several_namespaces_too(ttl: Ttl, shares: dict[str, Shares]) -> None:
    for seed in range(2):
        requests = split(made_up(300, seed=seed), 3)
        assert_equal_to_brute_force(requests, Setup(ttl, 100 * BLOCK_TOKENS, BLOCK_TOKENS, shares=shares))


@pytest.mark.parametrize("pool", [None, 1_500_000])
@pytest.mark.parametrize("ttl", [Ttl(), Ttl("sliding", 60), Ttl("absolute", 60)], ids=lambda ttl: ttl.label)
def test_on_the_beginning_of_the_public_trace_too(ttl: Ttl, pool: int | None) -> None:
    assert_equal_to_brute_force(public_trace(HEAD), Setup(ttl, pool))


@pytest.mark.parametrize(
    ("ttl", "percent", "exact"),
    [(Ttl(), 37.4, 37.34), (Ttl("sliding", 300), 29.3, 29.29), (Ttl("absolute", 300), 25.7, 25.67)],
    ids=lambda value: getattr(value, "label", value),
)
def test_brute_force_finds_the_figures_to_reach_on_the_public_trace(ttl: Ttl, percent: float, exact: float) -> None:
    requests = public_trace()
    assert 100 * optimistic_hit_ratio(requests, ttl) == pytest.approx(percent, abs=0.05)
    counted = BruteForce(ttl)
    counted.run(requests)
    assert 100 * counted.hit_ratio() == pytest.approx(exact, abs=0.005)


# Side by side.


def quiet_ratio(requests: Sequence[Request], setup: Setup) -> float:
    return replay(requests, setup).tallies["namespace-0"].hit_ratio or 0.0


@pytest.mark.parametrize("times", [1, 8])
def test_a_flooder_takes_nothing_of_a_fair_half_and_a_plain_lru_gives_it_nearly_all(times: int) -> None:
    quiet = only(split(made_up(400), 2), "namespace-0")
    flood = flooded(quiet, times, block_tokens=BLOCK_TOKENS)
    whole, half = (Setup(Ttl(), blocks * BLOCK_TOKENS, BLOCK_TOKENS) for blocks in (100, 50))
    fair = quiet_ratio(flood, whole)
    assert fair >= 0.95 * quiet_ratio(quiet, half) > 0
    assert quiet_ratio(flood, replace(whole, shares={"namespace-0": Shares(reserved=0.5)})) >= quiet_ratio(quiet, half)
    assert quiet_ratio(flood, replace(whole, is_one_cache=True)) < fair


def test_in_one_cache_everybody_shares_and_each_is_still_counted() -> None:
    alone = made_up(200)
    shared = replay(split(alone, 3), Setup(Ttl(), None, BLOCK_TOKENS, is_one_cache=True))
    assert shared.total.cached_tokens == replay(alone, Setup(Ttl(), None, BLOCK_TOKENS)).total.cached_tokens
    assert sorted(shared.tallies) == ["namespace-0", "namespace-1", "namespace-2"]


def test_what_is_served_and_what_is_missed_add_up() -> None:
    total = replay(made_up(300), Setup(Ttl("sliding", 60), 100 * BLOCK_TOKENS, BLOCK_TOKENS)).total
    assert total.cached_tokens + total.missed_tokens.total() == total.prompt_tokens
    assert total.requests == 300


def test_replays_are_alike_but_for_the_time_they_take() -> None:
    requests, setup = made_up(200), Setup(Ttl("sliding", 60), 100 * BLOCK_TOKENS, BLOCK_TOKENS)
    first, second = replay(requests, setup), replay(requests, setup)
    assert (first.tallies, first.moments) == (second.tallies, second.moments)


def test_each_arrival_is_heard_of() -> None:
    heard: list[int] = []
    replay(made_up(5), Setup(Ttl(), None, BLOCK_TOKENS), on_step=heard.append)
    assert heard == [1, 2, 3, 4, 5]


# Answers that take time.


def asked(at: float, ids: Sequence[int], answer: int = 10, rest: int = 1) -> Request:
    """A prompt of whole blocks and one token more."""
    return Request(at, len(ids) * BLOCK_TOKENS + rest, answer, array("Q", ids))


def slow(*requests: Request, blocks: int | None = None, ttl: Ttl = NO_TTL) -> Outcome:
    """A second for each token."""
    pool = None if blocks is None else blocks * BLOCK_TOKENS
    return replay(requests, Setup(ttl, pool, BLOCK_TOKENS, service_seconds_per_token=1))


def test_a_request_in_service_keeps_others_waiting_until_it_ends() -> None:
    total = slow(asked(0, [1, 2]), asked(4, [3, 4]), blocks=3).total
    assert (total.waited_requests, total.longest_wait_seconds, total.refused_requests) == (1, 6, 0)


def test_at_once_nobody_waits() -> None:
    pool = Setup(NO_TTL, 3 * BLOCK_TOKENS, BLOCK_TOKENS)
    assert replay([asked(0, [1, 2]), asked(4, [3, 4])], pool).total.waited_requests == 0


def test_blocks_of_a_request_in_service_can_be_hit() -> None:
    assert slow(asked(0, [1, 2]), asked(4, [1, 2])).total.cached_tokens == 2 * BLOCK_TOKENS


def test_an_answer_takes_room_and_its_blocks_stay_until_they_expire() -> None:
    grown = slow(asked(0, [1], answer=3 * BLOCK_TOKENS))
    assert grown.peak_resident_tokens == 5 * BLOCK_TOKENS
    later = slow(asked(0, [1], answer=3 * BLOCK_TOKENS), asked(100, [2], answer=0))
    assert later.moments[-1].resident_tokens == (4 + 2) * BLOCK_TOKENS


def test_a_long_answer_does_not_expire_its_own_prompt_and_an_absolute_ttl_does() -> None:
    turns = asked(0, [1, 2], answer=360), asked(400, [1, 2])
    assert slow(*turns, ttl=Ttl("sliding", 60)).total.cached_tokens == 2 * BLOCK_TOKENS
    assert slow(*turns, ttl=Ttl("absolute", 60)).total.cached_tokens == 0


def test_the_youngest_answer_gives_way_to_an_older_one_and_is_begun_anew_without_being_counted_again() -> None:
    outcome = slow(asked(0, [1], answer=20), asked(1, [2], answer=20), blocks=4)
    total = outcome.total
    assert (total.requests, total.preemptions, total.refused_requests, total.waited_requests) == (2, 1, 0, 0)
    assert total.prompt_tokens == 2 * (BLOCK_TOKENS + 1)
    assert max(moment.at_seconds for moment in outcome.moments) > 20
    assert outcome.peak_resident_tokens == 4 * BLOCK_TOKENS


def test_who_cannot_grow_although_it_is_alone_gives_up() -> None:
    """A reservation of idle blocks keeps what the answer would need."""
    requests = [asked(0, [1], answer=0), replace(asked(1, [3], answer=40), namespace="other")]
    shares = {"default": Shares(reserved=0.3)}
    setup = Setup(NO_TTL, 4 * BLOCK_TOKENS, BLOCK_TOKENS, shares=shares, service_seconds_per_token=1)
    total = replay(requests, setup).total
    assert (total.requests, total.preemptions, total.refused_requests) == (2, 1, 0)


@pytest.mark.parametrize("blocks", [30, 100])
def test_however_tight_it_is_everybody_is_counted_once_and_the_books_are_sound(blocks: int) -> None:
    for seed in range(3):
        requests = split(made_up(200, seed=seed, seconds=2), 3)
        setup = Setup(Ttl("sliding", 60), blocks * BLOCK_TOKENS, BLOCK_TOKENS, service_seconds_per_token=0.5)
        run = Run(requests, setup)
        for number, request in enumerate(requests, 1):
            run.arrive(number, request)
        run.finish()
        assert sum(one.requests for one in run.tallies.values()) == 200
        assert run.manager.check_integrity() == []


def test_what_never_fits_is_refused_and_counts_as_missed() -> None:
    total = slow(asked(0, [1, 2, 3]), asked(1, [4]), blocks=3).total
    assert (total.requests, total.refused_requests, total.waited_requests) == (2, 1, 0)
    assert total.missed_tokens["refused"] == 3 * BLOCK_TOKENS + 1


def test_what_a_reservation_keeps_from_a_request_for_good_is_refused() -> None:
    first, second = asked(0, [1, 2]), replace(asked(1, [3]), namespace="other")
    setup = Setup(NO_TTL, 3 * BLOCK_TOKENS, BLOCK_TOKENS, shares={"default": Shares(reserved=1)})
    assert replay([first, second], setup).tallies["other"].refused_requests == 1


def test_who_waits_goes_in_order_of_arrival_and_holds_up_no_other_namespace() -> None:
    others = [replace(one, namespace="other") for one in (asked(1, [3, 4]), asked(2, [5]), asked(3, [6]))]
    outcome = slow(asked(0, [1, 2]), *others, replace(asked(4, [7]), namespace="third"), blocks=5)
    assert {name: one.waited_requests for name, one in outcome.tallies.items()} == {
        "default": 0,
        "other": 3,
        "third": 0,
    }
