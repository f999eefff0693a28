"""What a request costs where: cached tokens save it, others in the way raise it, and sessions stay where they were."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.scoring import (
    REQUEST_TOKENS,
    TIE_TOKENS,
    WAITING_TOKENS,
    Candidate,
    Sight,
    attachment,
    cheapest,
    cost,
    pool_cost,
    queue_cost,
)
from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Engine

AGENTS = [f"agent-{number}" for number in range(1, 6)]
IDLE = Standing()
counts = st.integers(0, 40)
standings = st.builds(
    Standing,
    in_flight=counts,
    running=counts,
    waiting=counts,
    seats=counts,
    look_seconds=st.floats(0, 2),
    free_blocks=st.integers(0, 500),
    pool_blocks=st.sampled_from([0, 500]),
)
tokens = st.integers(0, 8_000)
sessions = st.binary(min_size=1, max_size=80)


def candidates(found: Mapping[str, Standing]) -> list[Candidate]:
    return [(Engine(agent, "http://x", True, {}, b""), standing) for agent, standing in found.items()]


@given(
    st.lists(standings, min_size=1, max_size=5), st.lists(tokens, min_size=5, max_size=5), tokens, st.none() | sessions
)
def test_who_is_chosen_costs_no_more_than_a_tie_above_the_least(
    some: list[Standing], matched: list[int], prompt: int, session: bytes | None
) -> None:
    found = dict(zip(AGENTS, some, strict=False))
    sight = Sight({agent: min(prompt, one) for agent, one in zip(AGENTS, matched, strict=True)}, prompt, session)
    chosen = cheapest(candidates(found), sight).agent
    costs = {agent: cost(standing, sight.matched(agent), prompt) for agent, standing in found.items()}
    assert costs[chosen] <= min(costs.values()) + (TIE_TOKENS if session else 0)


@given(standings, tokens, tokens, tokens)
def test_a_longer_match_never_costs_more(standing: Standing, prompt: int, one: int, two: int) -> None:
    shorter, longer = sorted((min(one, prompt), min(two, prompt)))
    assert cost(standing, longer, prompt) <= cost(standing, shorter, prompt)


@given(counts, counts, counts, counts)
def test_more_to_do_never_costs_less(in_flight: int, waiting: int, seats: int, more: int) -> None:
    less = Standing(in_flight=in_flight, waiting=waiting, seats=seats)
    assert queue_cost(less) <= queue_cost(Standing(in_flight=in_flight + more, waiting=waiting, seats=seats))
    assert queue_cost(less) <= queue_cost(Standing(in_flight=in_flight, waiting=waiting + more, seats=seats))


def test_who_has_only_just_come_holds_nobody_up_as_one_does_who_waits_for_others_to_end() -> None:
    """What an engine tells is up to a second old: a session would leave its cache for a wait that is over."""
    just_come = Standing(running=1, waiting=1, seats=8, free_blocks=90, pool_blocks=100)
    no_seat = Standing(running=1, waiting=1, seats=1, free_blocks=90, pool_blocks=100)
    no_blocks = Standing(running=1, waiting=1, seats=8, free_blocks=4, pool_blocks=100)
    assert queue_cost(just_come) == 2 * REQUEST_TOKENS
    assert queue_cost(no_seat) == queue_cost(no_blocks) == REQUEST_TOKENS + WAITING_TOKENS


def test_a_pool_costs_what_of_the_prompt_finds_no_room() -> None:
    tight = Standing(free_blocks=10, pool_blocks=100)
    assert [pool_cost(tight, missing) for missing in (0, 160, 161, 320)] == [0, 0, 16, 160]
    assert pool_cost(Standing(), 10**6) == 0  # of a pool that nobody told of, nothing is known


def test_the_cache_decides_among_engines_with_as_much_to_do() -> None:
    found = candidates(dict.fromkeys(AGENTS, Standing(in_flight=3)))
    for agent in AGENTS:
        assert cheapest(found, Sight({agent: 2_000}, 2_100, b"session")).agent == agent


def test_a_prefix_that_overloads_its_engine_goes_to_a_second_one_too() -> None:
    """And from then on both have it."""
    loads, matches, seen = dict.fromkeys(AGENTS, 0), {"agent-1": 2_000}, Counter[str]()
    for _ in range(60):
        found = candidates({agent: Standing(in_flight=load) for agent, load in loads.items()})
        chosen = cheapest(found, Sight(matches, 2_000)).agent
        loads[chosen] += 1
        matches[chosen] = 2_000
        seen[chosen] += 1
    assert seen["agent-1"] >= 2_000 / REQUEST_TOKENS  # it is used before it is spread
    assert len(seen) > 1
    assert max(loads.values()) - min(loads.values()) <= 2_000 / REQUEST_TOKENS + 1


def test_a_full_engine_is_left_for_one_that_has_to_compute_the_prompt() -> None:
    full, free = Standing(in_flight=16, running=16, waiting=2, seats=16), Standing(running=4, seats=16)
    found = candidates({"agent-1": full, "agent-2": free})
    assert cheapest(found, Sight({"agent-1": 2_000}, 2_000, b"session")).agent == "agent-2"


@given(sessions, st.sets(st.sampled_from(AGENTS), min_size=1))
def test_a_session_stays_where_it_is_whoever_else_goes(session: bytes, gone: set[str]) -> None:
    sight = Sight(session=session)
    before = cheapest(candidates(dict.fromkeys(AGENTS, IDLE)), sight).agent
    left = [agent for agent in AGENTS if agent not in gone or agent == before]
    assert cheapest(candidates(dict.fromkeys(reversed(left), IDLE)), sight).agent == before


def test_sessions_are_spread() -> None:
    chosen = Counter(max(AGENTS, key=lambda agent: attachment(b"%d" % k, agent)) for k in range(2_000))
    assert min(chosen.values()) > 300


def test_a_session_goes_elsewhere_when_its_engine_has_much_more_to_do() -> None:
    session = b"session"
    home = cheapest(candidates(dict.fromkeys(AGENTS, IDLE)), Sight(session=session)).agent
    for busy in range(1, 6):
        found = dict.fromkeys(AGENTS, IDLE) | {home: Standing(in_flight=busy)}
        is_home = cheapest(candidates(found), Sight(session=session)).agent == home
        assert is_home == (busy * REQUEST_TOKENS <= TIE_TOKENS)
