"""What came of customers' requests, as the guards of rollouts compare it."""

from typing import Literal

from engine_agent.contracts.identity import Identity
from engine_agent.contracts.wire import COUNTED, TTFT_SECONDS, heartbeat_check
from engine_agent.journal.records import Closed, Opened
from engine_agent.server.counters import EngineTotals, ScopeCounters
from engine_agent.server.metrics import Observer


def opened(namespace: str = "1", *, organisation: str = "7", kind: Literal["customer", "probe"] = "customer") -> Opened:
    return Opened(
        request_id="r",
        attempt=1,
        kind=kind,
        at=0.0,
        organisation_id=organisation,
        organisation="acme",
        namespace_id=namespace,
        namespace="prod",
        policy_revision=1,
        model="demo",
        kv_dtype="fp8",
        prompt_tokens=100,
        cached_tokens=64,
        miss_reason="cold",
        missed={"cold": 32, "tail": 4},
    )


def closed(outcome: str) -> Closed:
    return Closed(1, "r", 1, 0.0, outcome, 5, 10.0, 20.0)


def test_a_request_counts_for_the_fleet_its_organisation_and_its_namespace() -> None:
    counters = ScopeCounters(10)
    counters.opened(opened("1"))
    counters.opened(opened("2"))
    counters.first_token(opened("1"), 0.02)
    counters.first_token(opened("2"), 99.0)
    counters.closed(opened("1"), closed("stop"))
    counters.closed(opened("2"), closed("error"))
    found = counters.of(["fleet", "org/7", "ns/1", "ns/2", "ns/unknown"])
    assert {scope: one["requests"] for scope, one in found.items()} == {"fleet": 2, "org/7": 2, "ns/1": 1, "ns/2": 1}
    assert found["fleet"]["missed"] == {"cold": 64, "tail": 8}
    assert [found[scope]["errors"] for scope in ("fleet", "ns/1", "ns/2")] == [1, 0, 1]
    buckets = found["fleet"]["ttft_buckets"]
    assert buckets[TTFT_SECONDS.index(0.01)] == 0
    assert buckets[TTFT_SECONDS.index(0.02)] == 1, "not slower than the bucket's edge"
    assert buckets[-2:] == [1, 2]


def test_what_is_told_is_what_a_heartbeat_takes() -> None:
    counters = ScopeCounters(10)
    counters.opened(opened())
    told = counters.of(["fleet", "ns/1"])
    assert {*COUNTED} < {*told["fleet"]}
    engine = {"boot": "e", "state": "ready", "why": "", "hash": None}
    heartbeat = {"boot": "s", "sequence": 1, "applied": None, "engine": engine, "load": {}, "pool": {}, "spooled": 0}
    heartbeat_check({**heartbeat, "counters": told})


def test_namespaces_beyond_the_bound_count_for_the_fleet_alone() -> None:
    counters = ScopeCounters(2)
    for namespace in ("1", "2", "3", "1"):
        counters.opened(opened(namespace, organisation=namespace))
    found = counters.of(["fleet", "ns/1", "ns/2", "ns/3", "org/3"])
    assert {scope: one["requests"] for scope, one in found.items()} == {"fleet": 4, "ns/1": 2, "ns/2": 1}


def test_probes_count_in_no_customers_numbers_and_failures_without_headers_do() -> None:
    observer = Observer("demo")
    observer.opened(opened(kind="probe"))
    observer.first_token(opened(kind="probe"), 1.0)
    assert observer.counters.of(["fleet"])["fleet"]["requests"] == 0
    identity = Identity("7", "acme", "1", "prod", "infer", 1, "r", 1, "customer", None, 0.0, 1.0, "unit-1")
    observer.unanswered(identity)
    told = observer.counters.of(["fleet", "ns/1"])
    assert [(one["requests"], one["errors"]) for one in told.values()] == [(1, 1), (1, 1)]


def test_the_engines_own_count_is_of_every_kind_and_says_who_was_counted_on_since() -> None:
    totals = EngineTotals()
    totals.opened(opened("1"), 1)
    totals.opened(opened("2", kind="probe"), 3)
    totals.opened(opened("1"), 4)
    assert totals.since(0) == {"1": [2, 200, 128], "2": [1, 100, 64]}
    assert totals.since(3) == {"1": [2, 200, 128]}
    assert totals.since(4) == {}
