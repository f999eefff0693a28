"""What gateways hold besides what engines hold."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.rollouts.entries import EngineView, TrialView, gateway_entries, gateways_living
from engine_agent.contracts.protocol import snapshot_build

MODEL = {"name": "acme/tiny-model", "revision": "r1", "kv_dtypes": ["bf16", "fp8"], "context_tokens": 2048}


def engine(agent_id: str = "agent-1", **changes: Any) -> EngineView:
    view = EngineView(agent_id, f"http://{agent_id}:8101", "paged", [MODEL], agent_id.encode().ljust(32, b"."))
    return replace(view, **changes)


def trial(**changes: Any) -> TrialView:
    return replace(TrialView("a3", "1", ["7"], frozenset({"agent-1"}), 0.1), **changes)


ENGINES = [engine("agent-1"), engine("agent-2")]


def splits(*trials: TrialView, engines: list[EngineView] = ENGINES) -> dict[str, Any]:
    found = gateway_entries(engines, {}, trials)
    return {key: entry for key, entry in found.items() if key.startswith("split/")}


def test_a_route_says_where_an_engine_is_what_it_serves_and_how_it_is_to_be_believed() -> None:
    (entry,) = gateway_entries([engine()], {}, ()).values()
    assert entry["address"] == "http://agent-1:8101"
    assert entry["models"] == {
        "acme/tiny-model": {
            "revision": "r1",
            "kv_dtypes": ["bf16", "fp8"],
            "context_tokens": 2048,
            "backend": "paged",
        }
    }
    assert base64.b64decode(entry["identity"]).startswith(b"agent-1.")
    assert entry["state"] == "active"


def test_a_draining_engine_is_named_as_such() -> None:
    (entry,) = gateway_entries([engine(is_draining=True)], {}, ()).values()
    assert entry["state"] == "draining"


def test_an_engine_that_nobody_can_reach_is_no_route() -> None:
    assert gateway_entries([engine(address="")], {}, ()) == {}


def test_a_gate_names_the_model_and_why() -> None:
    refused = {"acme/tiny-model": {"int4": "int4 failed"}, "other": {}}
    ((key, entry),) = gateway_entries([], refused, ()).items()
    assert key == "gate/12da25ecdefe27465290846b11c6547a"  # as before an upgrade
    assert (entry["model"], entry["refused"]) == ("acme/tiny-model", {"int4": "int4 failed"})


def test_the_share_of_a_step_is_the_share_of_the_requests() -> None:
    (entry,) = splits(trial()).values()
    assert entry == {"org": "1", "namespaces": ["7"], "agents": ["agent-1"], "share": 0.1}


def test_a_step_that_names_labels_gets_as_many_requests_as_it_has_engines() -> None:
    (entry,) = splits(trial(share=None)).values()
    assert entry["share"] == 0.5


def test_a_rollout_of_the_fleet_splits_everybodys_requests() -> None:
    (entry,) = splits(trial(organisation_id=None, namespaces=None)).values()
    assert (entry["org"], entry["namespaces"]) == ("fleet", None)


def test_nothing_is_split_before_the_first_engine_and_after_the_last() -> None:
    assert splits(trial(reached=frozenset())) == {}
    assert splits(trial(reached=frozenset({"agent-1", "agent-2"}))) == {}
    assert splits(trial(reached=frozenset({"elsewhere"}))) == {}


def test_engines_that_cannot_be_reached_are_no_part_of_a_split() -> None:
    assert splits(trial(), engines=[engine("agent-1"), engine("agent-2", address="")]) == {}


def test_all_of_it_is_well_formed() -> None:
    fleet_wide = trial(rollout_id="0b5e4a6e-7a35-4f4c-a71e-0c8f4d0c0d55", organisation_id=None, namespaces=None)
    found = gateway_entries(ENGINES, {"a/b c": {"int4": "failed"}}, [trial(), fleet_wide], ["gateway-1", "gateway-2"])
    kinds = {key.partition("/")[0] for key in snapshot_build("gateway", found, {}).entries}
    assert kinds == {"route", "gate", "split", "doors"}


def test_gateways_know_of_each_other_and_one_alone_need_not_be_told() -> None:
    assert gateway_entries([], {}, (), ["gateway-1"]) == {}
    found = gateway_entries([], {}, (), ["gateway-2", "gateway-1"])
    assert found == {"doors/all": {"org": "fleet", "gateways": ["gateway-1", "gateway-2"]}}


def test_a_gateway_that_is_gone_for_long_shares_no_limit() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    heard = {"gateway-1": now, "gateway-2": now - timedelta(seconds=61), "gateway-3": None}
    assert gateways_living(heard, now=now) == ["gateway-1"]


def test_while_nobody_is_heard_all_share_as_before() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    long_ago = dict.fromkeys(("gateway-2", "gateway-1"), now - timedelta(hours=1))
    assert gateways_living({**long_ago, "gateway-3": None}, now=now) == ["gateway-1", "gateway-2"]
