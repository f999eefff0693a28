"""Which engine gets a request: able, open, in its share, least loaded, and each in turn."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.gateway.route import Router, UnknownModel, UnprovenFormat, UnservedFormat, Wish, elsewhere_tokens
from engine_agent.gateway.scoring import Sight
from engine_agent.gateway.standing import Standing
from engine_agent.gateway.tables import Engine, Tables, tables_empty, tables_read
from tests.gateway.snapshots import MODEL, POLICY, gate, gateway_snapshot, namespace, route, split, tenants

ALL = ("agent-1", "agent-2", "agent-3")
IDLE = Standing()


def tables(*entries: dict[str, Any], policies: Any = (POLICY,)) -> Tables:
    return tables_read(gateway_snapshot(tenants(), *entries, policies=policies), tables_empty())


def wish(found: Tables, kv_dtype: str | None = None, *, model: str = MODEL, slug: str = "default") -> Wish:
    acme = found.organisations["1"]
    return Wish(acme, acme.namespaces[slug], model, kv_dtype)


def names(groups: list[list[Engine]]) -> list[list[str]]:
    return [[one.agent for one in group] for group in groups]


def routed(found: Tables, kv_dtype: str | None = None) -> list[list[str]]:
    return names(Router().groups(found, wish(found, kv_dtype)))


# Able and open


def test_a_model_nobody_serves_is_unknown() -> None:
    found = tables(route("agent-1"))
    with pytest.raises(UnknownModel):
        Router().groups(found, wish(found, model="other"))


def test_only_engines_that_serve_the_model_and_take_requests_are_asked() -> None:
    assert routed(tables(route("agent-1"), route("agent-2", state="draining"), route("agent-3", models=["x"]))) == [
        ["agent-1"]
    ]


def test_where_all_are_drained_there_is_nobody_but_the_model_is_known() -> None:
    assert routed(tables(route("agent-1", state="draining"))) == []


def test_a_format_asked_for_goes_only_where_it_can_be_done() -> None:
    found = tables(route("agent-1", kv_dtypes=["bf16"]), route("agent-2"))
    assert routed(found, "int4") == [["agent-2"]]


def test_a_format_no_engine_can_do_is_refused_with_what_can_be_had() -> None:
    found = tables(route("agent-1", kv_dtypes=["bf16", "fp8"]), gate({"fp8": "too much lost"}))
    with pytest.raises(UnservedFormat) as caught:
        routed(found, "int4")
    assert caught.value.alternatives == ["bf16"]


def test_a_format_that_has_not_passed_is_refused_with_why_and_what_can_be_had() -> None:
    found = tables(route("agent-1"), gate({"int4": "perplexity rose by 9 %"}))
    with pytest.raises(UnprovenFormat) as caught:
        routed(found, "int4")
    assert (caught.value.why, caught.value.alternatives) == ("perplexity rose by 9 %", ["bf16", "fp8"])


def test_the_policys_own_format_has_to_have_passed_too() -> None:
    with pytest.raises(UnprovenFormat):
        routed(tables(route("agent-1"), gate({"bf16": "never measured"})))


def test_an_engine_that_may_not_do_the_policys_format_is_not_asked() -> None:
    found = tables(route("agent-1", kv_dtypes=["fp8"]), route("agent-2"))
    assert routed(found) == [["agent-2"]]


def test_where_no_engine_may_do_the_policys_format_it_is_refused() -> None:
    with pytest.raises(UnservedFormat) as caught:
        routed(tables(route("agent-1", kv_dtypes=["fp8"])))
    assert (caught.value.kv_dtype, caught.value.alternatives) == ("bf16", ["fp8"])


def test_an_engine_that_does_not_try_a_policy_yet_serves_by_the_one_before() -> None:
    found = tables(route("agent-1", kv_dtypes=["fp8"]), route("agent-2"), split(["agent-2"], 0.0))
    assert routed(found) == [["agent-1"], ["agent-2"]]


# Shares


def sides(found: Tables, count: int, *, slug: str = "default", router: Router | None = None) -> list[str]:
    router = router or Router()
    return [names(router.groups(found, wish(found, slug=slug)))[0][0] for _ in range(count)]


@given(st.floats(0, 1), st.integers(1, 400))
def test_of_any_number_of_requests_the_canary_gets_its_share_to_within_one(share: float, count: int) -> None:
    found = tables(route("agent-1"), route("agent-2"), split(["agent-2"], share))
    got = Counter(sides(found, count))["agent-2"]
    assert abs(got - count * share) < 1 + 1e-6


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.1, 10), (0.29, 29), (1.0, 100)])
def test_of_a_hundred_it_is_exact(share: float, expected: int) -> None:
    found = tables(route("agent-1"), route("agent-2"), split(["agent-2"], share))
    assert Counter(sides(found, 100))["agent-2"] == expected


def test_two_namespaces_in_turn_both_reach_the_canary() -> None:
    found = tables(route("agent-1"), route("agent-2"), split(["agent-2"], 0.5))
    router = Router()
    seen = [(slug, sides(found, 1, slug=slug, router=router)[0]) for _ in range(20) for slug in ("default", "batch")]
    counted = Counter(seen)
    assert counted["default", "agent-2"] == counted["batch", "agent-2"] == 10


def test_many_namespaces_with_one_request_each_bring_the_share_too() -> None:
    many: dict[str, Any] = {}
    for number in range(1_000):
        many |= namespace(f"n{number}", "1", f"slug-{number}")
    found = tables(many, route("agent-1"), route("agent-2"), split(["agent-2"], 0.1))
    router = Router()
    counted = Counter(sides(found, 1, slug=f"slug-{number}", router=router)[0] for number in range(1_000))
    assert 70 <= counted["agent-2"] <= 130


def test_a_split_is_for_its_namespaces_alone() -> None:
    found = tables(route("agent-1"), route("agent-2"), split(["agent-2"], 1.0, ["12"]))
    assert names(Router().groups(found, wish(found))) == [["agent-1", "agent-2"]]
    assert names(Router().groups(found, wish(found, slug="batch"))) == [["agent-2"], ["agent-1"]]


def test_an_organisations_own_split_counts_beside_the_fleets() -> None:
    own = split(["agent-2"], 1.0, ["11"], name="2", org="1")
    found = tables(*map(route, ALL), own, split(["agent-2", "agent-3"], 0.0))
    assert routed(found) == [["agent-2"], ["agent-1", "agent-3"]]
    assert names(Router().groups(found, wish(found, slug="batch"))) == [["agent-1"], ["agent-2", "agent-3"]]


def test_where_one_side_can_do_nothing_for_a_request_the_other_gets_it() -> None:
    found = tables(route("agent-1"), route("agent-2", state="draining"), split(["agent-2"], 1.0))
    assert routed(found) == [["agent-1"]]


def test_who_does_not_answer_on_one_side_is_followed_by_the_other() -> None:
    found = tables(route("agent-1"), route("agent-2"), split(["agent-2"], 1.0))
    router = Router()
    groups = router.groups(found, wish(found))
    standings = {"agent-2": Standing(is_reachable=False)}
    picked = router.pick(groups, lambda agent: standings.get(agent, IDLE), ())
    assert picked is not None
    assert picked.agent == "agent-1"


# Load


def picks(router: Router, found: Tables, standings: dict[str, Standing], count: int = 1) -> list[str]:
    groups = router.groups(found, wish(found))
    picked = [router.pick(groups, lambda agent: standings.get(agent, IDLE), ()) for _ in range(count)]
    return [one.agent for one in picked if one]


def test_those_that_are_alike_take_turns() -> None:
    assert Counter(picks(Router(), tables(*map(route, ALL)), {}, 9)) == dict.fromkeys(ALL, 3)


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_the_least_loaded_is_asked(loads: list[int]) -> None:
    standings = {agent: Standing(in_flight=load) for agent, load in zip(ALL, loads, strict=True)}
    found = tables(*map(route, ALL))
    sight = Sight(dict.fromkeys(ALL, 1), 1)
    picked = Router().pick(Router().groups(found, wish(found)), standings.__getitem__, (), sight)
    assert picked is not None
    assert standings[picked.agent].in_flight == min(loads)


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3), st.integers(0))
def test_where_nothing_is_known_of_a_request_the_most_loaded_of_several_is_not_asked(
    loads: list[int], seed: int
) -> None:
    standings = {agent: Standing(in_flight=load) for agent, load in zip(ALL, loads, strict=True)}
    (picked,) = picks(Router(random=Random(seed)), tables(*map(route, ALL)), standings)
    assert standings[picked].in_flight <= sorted(loads)[1]


def test_who_comes_back_gets_its_share() -> None:
    standings = {"agent-1": Standing(share=0.2)}
    seen = Counter(picks(Router(random=Random(1)), tables(*map(route, ALL[:2])), standings, 2_000))
    assert 150 <= seen["agent-1"] <= 250  # half of a fifth


def test_where_all_come_back_alike_the_cache_decides() -> None:
    found, router = tables(*map(route, ALL[:2])), Router(random=Random(1))
    sight = Sight({"agent-1": 4_000}, 4_000, b"session")
    back = Standing(share=0.1)
    groups = router.groups(found, wish(found))
    picked = [router.pick(groups, lambda _: back, (), sight) for _ in range(100)]
    assert {one.agent for one in picked if one} == {"agent-1"}


def test_who_fails_is_asked_after_all_others_and_before_the_unreachable() -> None:
    found, router = tables(*map(route, ALL)), Router()
    standings = {"agent-1": Standing(is_ejected=True), "agent-2": Standing(is_reachable=False)}
    tried: list[str] = []
    groups = router.groups(found, wish(found))
    while picked := router.pick(groups, lambda agent: standings.get(agent, IDLE), tried):
        tried.append(picked.agent)
    assert tried == ["agent-3", "agent-1", "agent-2"]


def test_silent_engine_is_never_picked() -> None:
    found, router = tables(*map(route, ALL[:2])), Router()
    standings = {"agent-1": Standing(is_silent=True), "agent-2": Standing(is_reachable=False)}
    assert set(picks(router, found, standings, 20)) == {"agent-2"}
    assert picks(router, found, dict.fromkeys(ALL, Standing(is_silent=True))) == []


def test_who_is_full_is_not_asked_where_room_is_wanted() -> None:
    found, router = tables(*map(route, ALL[:2])), Router()
    groups = router.groups(found, wish(found))
    standings = {"agent-1": Standing(in_flight=4, seats=4), "agent-2": Standing(running=2, waiting=3, seats=2)}
    assert router.pick(groups, standings.__getitem__, (), is_free=True) is None
    standings["agent-2"] = Standing(in_flight=1, seats=2)
    free = router.pick(groups, standings.__getitem__, (), is_free=True)
    assert free is not None
    assert free.agent == "agent-2"


def test_a_full_side_of_a_split_is_followed_by_the_other() -> None:
    found, router = tables(*map(route, ALL[:2]), split(["agent-2"], 1.0)), Router()
    groups = router.groups(found, wish(found))
    standings = {"agent-2": Standing(in_flight=4, seats=4)}
    free = router.pick(groups, lambda agent: standings.get(agent, IDLE), (), is_free=True)
    assert free is not None
    assert free.agent == "agent-1"


def test_the_canarys_share_is_kept_whatever_is_cached_elsewhere() -> None:
    found, router = tables(*map(route, ALL[:2]), split(["agent-2"], 0.25)), Router()
    sight = Sight({"agent-1": 4_000}, 4_000, b"session")
    picked = [router.pick(router.groups(found, wish(found)), lambda _: IDLE, (), sight) for _ in range(100)]
    assert Counter(one.agent for one in picked if one) == {"agent-1": 75, "agent-2": 25}


def test_in_turn_means_in_turn_whatever_is_cached() -> None:
    found, router = tables(*map(route, ALL)), Router("round-robin")
    groups, sight = router.groups(found, wish(found)), Sight({"agent-1": 4_000}, 4_000, b"session")
    standings = {"agent-1": Standing(in_flight=9)}
    picked = [router.pick(groups, lambda agent: standings.get(agent, IDLE), (), sight) for _ in range(9)]
    assert Counter(one.agent for one in picked if one) == dict.fromkeys(ALL, 3)


@given(st.dictionaries(st.sampled_from(ALL), st.integers(0, 9_000)), st.sets(st.sampled_from(ALL)))
def test_the_best_match_elsewhere_is_told_where_it_is_longer(matches: dict[str, int], away: set[str]) -> None:
    found = tables(*map(route, ALL))
    groups = Router().groups(found, wish(found))
    told = elsewhere_tokens(groups, lambda agent: Standing(agent not in away), Sight(matches, 9_000), "agent-1")
    best = max((matches.get(agent, 0) for agent in ("agent-2", "agent-3") if agent not in away), default=0)
    assert told == (best if best > matches.get("agent-1", best) else 0)


def test_an_engine_that_tells_nothing_of_itself_is_told_of_no_other() -> None:
    found = tables(*map(route, ALL))
    groups, sight = Router().groups(found, wish(found)), Sight({"agent-2": 4_000}, 4_000)
    assert elsewhere_tokens(groups, lambda _: IDLE, sight, "agent-1") == 0
    assert elsewhere_tokens(groups, lambda _: IDLE, Sight({**sight.matches, "agent-1": 0}, 4_000), "agent-1") == 4_000


def test_an_engine_that_is_slow_to_look_up_counts_as_busier() -> None:
    standings = {"agent-1": Standing(in_flight=1, look_seconds=0.5), "agent-2": Standing(in_flight=5)}
    assert picks(Router(), tables(route("agent-1"), route("agent-2")), standings, 3) == ["agent-2"] * 3


def test_nobody_is_asked_twice_and_the_unreachable_are_asked_last() -> None:
    found, router = tables(*map(route, ALL)), Router()
    standings = {"agent-1": Standing(is_reachable=False), "agent-2": Standing(in_flight=9)}
    tried: list[str] = []
    groups = router.groups(found, wish(found))
    while picked := router.pick(groups, lambda agent: standings.get(agent, IDLE), tried):
        tried.append(picked.agent)
    assert tried == ["agent-3", "agent-2", "agent-1"]


@given(
    st.lists(st.sampled_from(["active", "draining"]), min_size=3, max_size=3),
    st.lists(st.sets(st.sampled_from(["bf16", "fp8", "int4"])), min_size=3, max_size=3),
    st.sampled_from([None, "bf16", "fp8", "int4", "nvfp4"]),
    st.lists(st.tuples(st.sets(st.sampled_from(ALL)), st.floats(0, 1)), max_size=3),
)
def test_nobody_gets_what_it_cannot_do_and_everybody_who_can_is_there_once(
    states: list[str], kv_dtypes: list[set[str]], asked: str | None, splits: list[tuple[set[str], float]]
) -> None:
    routes = [
        route(agent, kv_dtypes=sorted(some), state=state)
        for agent, some, state in zip(ALL, kv_dtypes, states, strict=True)
    ]
    tries = [split(sorted(agents), share, name=str(number)) for number, (agents, share) in enumerate(splits)]
    found = tables(*routes, *tries)
    wanted = asked or "bf16"
    able = {agent for agent, some in zip(ALL, kv_dtypes, strict=True) if wanted in some}
    if asked is None:
        able |= {agent for agent in ALL if any(agent not in agents for agents, _ in splits)}
    try:
        groups = names(Router().groups(found, wish(found, asked)))
    except UnservedFormat:
        assert not able
        return
    is_open = {agent for agent, state in zip(ALL, states, strict=True) if state == "active"}
    assert sorted(agent for group in groups for agent in group) == sorted(able & is_open)
    assert all(groups)
