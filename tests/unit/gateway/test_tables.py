"""A snapshot is read into tables whole or not at all, and a change costs what it touches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_agent.contracts.protocol import Snapshot, snapshot_build
from engine_agent.gateway.tables import BadTables, Formats, Tables, tables_empty, tables_read
from tests.gateway.snapshots import (
    KEY,
    MODEL,
    POLICY,
    SECRETS,
    digest,
    gate,
    gateway_snapshot,
    key,
    namespace,
    organisation,
    route,
    split,
    tenants,
)
from tests.support.case_names import case_name


def read(*entries: dict[str, Any], policies: Any = (POLICY,)) -> Tables:
    return tables_read(gateway_snapshot(*entries, policies=policies), tables_empty())


def meant(tables: Tables) -> Any:
    """All that requests see of them."""
    return (
        tables.snapshot.hash,
        tables.organisations,
        tables.keys,
        tables.engines,
        tables.refused,
        tables.splits,
    )


def test_a_snapshot_says_whose_a_key_is_and_where_engines_are() -> None:
    found = read(tenants(), route("agent-1", "http://10.0.0.1:8101/", context_tokens=4_096), gate({"int4": "no"}))
    assert found.keys[digest(KEY)].organisation == "1"
    assert found.organisations["1"].namespaces["batch"].revision == 3
    assert found.organisations["1"].limits == {"requests_per_minute": 600_000}
    engine = found.engines["agent-1"]
    assert (engine.address, engine.secret, engine.is_open) == (
        "http://10.0.0.1:8101",
        SECRETS["agent-1"].encode(),
        True,
    )
    assert engine.models[MODEL].kv_dtypes == ("bf16", "fp8", "int4")
    assert found.refused == {MODEL: {"int4": "no"}}
    assert found.gateways == frozenset()
    assert (set(found.models), found.most_context_tokens) == ({MODEL}, 4_096)


def test_gateways_that_share_limits_are_named() -> None:
    found = read(tenants(), {"doors/all": {"org": "fleet", "gateways": ["gateway-1", "gateway-2"]}})
    assert found.gateways == {"gateway-1", "gateway-2"}


def test_an_engine_in_any_other_state_than_active_takes_none() -> None:
    found = read(tenants(), route("agent-1", state="draining"), route("agent-2", state="stale"))
    assert [one.is_open for one in found.engines.values()] == [False, False]


def test_a_policy_for_one_model_goes_before_the_policy_for_all() -> None:
    own = {**POLICY, "models": {"large": {"kv_dtype": "fp8", "request_kv_dtypes": []}}}
    found = read(organisation("1", "acme"), namespace("11", "1", "default", own), policies=[own])
    rules = found.organisations["1"].namespaces["default"].rules
    assert rules.of("large") == Formats("fp8", ())
    assert rules.of("small") == Formats("bf16", ("int4", "fp8"))


def test_a_policy_that_says_nothing_of_formats_means_the_products_own() -> None:
    silent = {"ttl_seconds": 60}
    found = read(organisation("1", "acme"), namespace("11", "1", "default", silent), policies=[silent])
    assert found.organisations["1"].namespaces["default"].rules.of(MODEL).allowed == ("fp8", "int4")


ORGANISATIONS = st.lists(
    st.tuples(
        st.sampled_from(["active", "suspended"]),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=3, unique_by=lambda one: one[0]),
        st.lists(st.sampled_from(["k1", "k2", "k3"]), max_size=3, unique=True),
    ),
    max_size=4,
)
FLEETS = st.tuples(st.sets(st.sampled_from(sorted(SECRETS))), st.sampled_from(["active", "draining"]), st.booleans())


def world(organisations: Any, fleet: Any) -> Snapshot:
    entries: dict[str, Any] = {}
    for number, (state, namespaces, keys) in enumerate(organisations):
        org = str(number)
        entries |= organisation(org, f"org-{org}", state)
        for slug, revision in namespaces:
            entries |= namespace(f"{org}-{slug}", org, slug, revision=revision)
        for name in keys:
            entries |= key(f"{org}-{name}", org)
    agents, state, is_split = fleet
    for agent in agents:
        entries |= route(agent, state=state)
    entries |= split(sorted(agents), 0.1) if is_split else {}
    entries |= split(["agent-1"], 0.5, ["0-a"], name="2", org="0") if is_split and organisations else {}
    return gateway_snapshot(entries)


@given(st.lists(st.tuples(ORGANISATIONS, FLEETS), min_size=2, max_size=5))
def test_read_after_others_or_alone_a_snapshot_means_the_same(worlds: Any) -> None:
    tables = tables_empty()
    for one in worlds:
        snapshot = world(*one)
        tables = tables_read(snapshot, tables)
        assert meant(tables) == meant(tables_read(snapshot, tables_empty()))


def test_a_change_costs_what_it_touches() -> None:
    """Of two thousand organisations, what did not change is the very same object afterwards."""
    many: dict[str, Any] = {}
    for number in range(2_000):
        many |= organisation(f"o{number}", f"slug-{number}") | namespace(f"n{number}", f"o{number}", "default")
        many |= key(f"k{number}", f"o{number}")
    before = tables_read(gateway_snapshot(many, route("agent-1")), tables_empty())
    changed = before.snapshot.replaced(put=namespace("n7", "o7", "default", revision=8))
    after = tables_read(changed, before)
    assert [org for org in before.organisations if after.organisations[org] is not before.organisations[org]] == ["o7"]
    assert after.engines is before.engines
    assert after.organisations["o7"].namespaces["default"].revision == 8
    assert after.keys == before.keys


def test_what_no_request_could_be_served_by_is_refused_by_name(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (route("agent-1", "10.0.0.1:8101"), "route/agent-1.address: must be like http"),
        (route("agent-1", "ftp://10.0.0.1"), "route/agent-1.address: must be like http"),
        (route("agent-1", "http://10.0.0.1:99999"), "route/agent-1.address: must be like http"),
        (route("agent-1", "http://10.0.0.1/path"), "route/agent-1.address: must be like http"),
        (route("agent-1", context_tokens=-1), "route/agent-1.models.demo.context_tokens: must be a whole number"),
        (route("agent-1", kv_dtypes=[5]), "route/agent-1.models.demo.kv_dtypes: must be a list of names"),  # type: ignore[list-item]
        (namespace("11", "1", "default"), "org/1: is missing, but entries are of it"),
        (key(KEY, "1"), "org/1: is missing, but entries are of it"),
    ]
    for entries, problem in cases:
        with subtests.test(msg=case_name(entries, problem)), pytest.raises(BadTables, match=problem):
            read(entries)


@pytest.mark.parametrize(
    "policy", [{"kv_dtype": 5}, {"request_kv_dtypes": "int4"}, {"models": []}, {"models": {"demo": 1}}]
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(policy: dict[str, Any]) -> None:
    with pytest.raises(BadTables, match=r"ns/11\.policy"):
        read(organisation("1", "acme"), namespace("11", "1", "default", policy), policies=[policy])


def test_an_engines_snapshot_is_no_gateways() -> None:
    with pytest.raises(BadTables, match="kind: engine is not gateway"):
        tables_read(snapshot_build("engine", {}, {}), tables_empty())


def test_no_secret_is_shown() -> None:
    shown = repr(read(tenants(), route("agent-1")))
    assert SECRETS["agent-1"] not in shown
