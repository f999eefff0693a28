"""What an agent's state and conditions are, of facts alone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.fleet.health import (
    KINDS,
    AgentFacts,
    Conditions,
    Needed,
    Refused,
    agent_state,
    conditions,
    gravest,
    is_in_sync,
)

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
OURS = "1.4.2"
NEW, OLD = "a" * 64, "b" * 64
STALE_AFTER = 3.0


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


HEALTHY = AgentFacts(
    kind="engine",
    is_revoked=False,
    is_draining=False,
    last_seen_at=ago(0.4),
    desired_hash=NEW,
    behind_since=None,
    applied_hash=NEW,
    rejected_hash="",
    rejected_reason="",
    rejected_at=None,
    is_held_known=True,
    engine={"boot": "e1", "state": "ready", "why": None, "hash": NEW},
    held_hash=NEW,
    clock_skew_seconds=0.02,
    version="1.4.0",
    formats=("bf16", "fp8"),
    formats_once=("bf16", "fp8"),
    model_formats={"m": ("bf16", "fp8")},
    needed=(Needed("fp8"),),
    why_idle="",
    refused=(),
    lost_reports=0,
)


def found(facts: AgentFacts, before: Conditions | None = None, now: datetime = NOW) -> Conditions:
    return conditions(facts, before=before or {}, now=now, stale_after=STALE_AFTER, ours=OURS)


def engine(**changes: Any) -> dict[str, Any]:
    return {**HEALTHY.engine, **changes}


def state(**changes: Any) -> str:
    facts: dict[str, Any] = {
        "is_revoked": False,
        "is_draining": False,
        "last_seen_at": ago(1),
        "engine_state": "ready",
    }
    return agent_state(**{**facts, **changes}, now=NOW, stale_after=STALE_AFTER)


def test_an_agent_that_is_as_it_should_be_has_no_conditions() -> None:
    assert found(HEALTHY) == {}
    assert gravest({}) is None


ILL: dict[str, tuple[AgentFacts, datetime, str]] = {
    "stale": (replace(HEALTHY, last_seen_at=ago(3.1)), ago(3.1), "nothing heard of it since 2026-11-22T11:59:56Z"),
    "engine_down": (
        replace(HEALTHY, engine=engine(state="down", why="exit status 9", hash=None)),
        NOW,
        "the engine is down: exit status 9",
    ),
    "rejected": (
        replace(HEALTHY, applied_hash=OLD, rejected_hash=NEW, rejected_reason="no room", rejected_at=ago(2)),
        ago(2),
        "it cannot hold what it is to hold: no room",
    ),
    "unknown_hash": (replace(HEALTHY, is_held_known=False), NOW, "it holds aaaaaaaaaaaa…, which it was never to hold"),
    "engine_differs": (
        replace(HEALTHY, engine=engine(hash=OLD)),
        NOW,
        "its engine holds bbbbbbbbbbbb…, its sidecar brought it aaaaaaaaaaaa…",
    ),
    "behind": (
        replace(HEALTHY, applied_hash=OLD, behind_since=ago(3.5)),
        ago(3.5),
        "it holds bbbbbbbbbbbb… and is to hold aaaaaaaaaaaa…",
    ),
    "unwritable": (
        replace(HEALTHY, engine=engine(why="/home/a: cannot be written: No space left on device")),
        NOW,
        "it waits for room on its disk: /home/a: cannot be written: No space left on device",
    ),
    "capability_lost": (
        replace(HEALTHY, formats=("bf16",), model_formats={"m": ("bf16",)}),
        NOW,
        "a policy needs fp8, which it cannot do any more",
    ),
    "unproven": (
        replace(HEALTHY, why_idle="it gets no requests: fp8 was not measured on m at r on vllm-cpu"),
        NOW,
        "it gets no requests: fp8 was not measured on m at r on vllm-cpu",
    ),
    "refusing": (
        replace(HEALTHY, refused=[Refused("forged", 3, ago(9), "apply 7"), Refused("expired", 1, ago(60))]),
        ago(60),
        "it refused commands: 1 expired, 3 forged; the last: apply 7",
    ),
    "version_skew": (replace(HEALTHY, version="1.3.9"), NOW, "it is version 1.3.9, the control plane 1.4.2"),
    "clock_skew": (replace(HEALTHY, clock_skew_seconds=600.3), NOW, "its clock is 10 min ahead"),
    "lost_reports": (replace(HEALTHY, lost_reports=2), NOW, "2 reports never came: its spool was cut short"),
}


def test_each_condition_says_since_when_and_why(subtests: pytest.Subtests) -> None:
    for kind in ILL:
        with subtests.test(msg=kind):
            facts, since, why = ILL[kind]
            assert found(facts) == {kind: {"since": text(since.replace(microsecond=0)), "why": why}}


@pytest.mark.parametrize("seconds", [3_600, 86_400])
def test_an_agent_that_was_seen_before_the_clock_was_set_back_is_not_thought_alive_until_then(seconds: float) -> None:
    ahead = replace(HEALTHY, last_seen_at=ago(-seconds))
    assert state(last_seen_at=ago(-seconds)) == "stale"
    assert found(ahead)["stale"] == {
        "since": text(NOW),
        "why": "nothing heard of it since the control plane's clock was set back",
    }


def test_web_processes_whose_clocks_are_a_little_apart_set_nothing_back() -> None:
    assert state(last_seen_at=ago(-2)) == "ready"
    assert found(replace(HEALTHY, last_seen_at=ago(-2))) == {}


def test_every_kind_has_its_case() -> None:
    assert {*ILL} == {*KINDS}


def test_a_condition_that_goes_on_began_when_it_began_and_one_that_is_over_is_gone(subtests: pytest.Subtests) -> None:
    for kind in ILL:
        with subtests.test(msg=kind):
            facts, _, _ = ILL[kind]
            first = found(facts)
            assert found(facts, first, NOW + timedelta(seconds=1))[kind]["since"] == first[kind]["since"]
            assert kind not in found(HEALTHY, first)


WELL: dict[str, AgentFacts] = {
    "heard just in time": replace(HEALTHY, last_seen_at=ago(3.0)),
    "behind for a moment": replace(HEALTHY, applied_hash=OLD, behind_since=ago(3.0)),
    "nothing desired yet": replace(HEALTHY, desired_hash="", applied_hash="", held_hash=None, engine=engine(hash=None)),
    "another hash was rejected": replace(HEALTHY, rejected_hash=OLD, rejected_reason="no room", rejected_at=ago(2)),
    "it was rejected and then applied": replace(HEALTHY, rejected_hash=NEW, rejected_reason="no room"),
    "engine starting without a state": replace(HEALTHY, engine=engine(state="starting", hash=None)),
    "gateway without an engine's hash": replace(HEALTHY, kind="gateway", engine=engine(hash=None)),
    "gateway without formats": replace(HEALTHY, kind="gateway", formats=(), model_formats={}),
    "a format it never could": replace(HEALTHY, needed=[Needed("int4")]),
    "a format of a model it does not serve": replace(HEALTHY, needed=[Needed("fp8", "other")]),
    "refused long ago": replace(HEALTHY, refused=[Refused("forged", 3, ago(600))]),
    "another patch": replace(HEALTHY, version="1.4.17"),
    "a clock a little off": replace(HEALTHY, clock_skew_seconds=-5.0),
}


def test_nothing_is_wrong_with(subtests: pytest.Subtests) -> None:
    for case in WELL:
        with subtests.test(msg=case):
            assert found(WELL[case]) == {}


def test_a_model_that_lost_a_format_is_told_where_a_policy_names_that_model() -> None:
    facts = replace(HEALTHY, model_formats={"m": ("bf16",)}, needed=[Needed("bf16"), Needed("fp8", "m")])
    assert {*found(facts)} == {"capability_lost"}


def test_a_clock_that_is_behind_is_told_so() -> None:
    assert found(replace(HEALTHY, clock_skew_seconds=-12))["clock_skew"]["why"] == "its clock is 12 s behind"


def test_what_is_told_does_not_change_with_every_heartbeat() -> None:
    """Else each second of silence, and each millisecond of a clock, would be written down and told to everybody."""
    stale, skewed = replace(HEALTHY, last_seen_at=ago(60)), replace(HEALTHY, clock_skew_seconds=600.31)
    assert found(stale, found(stale), NOW + timedelta(seconds=30)) == found(stale)
    assert found(replace(skewed, clock_skew_seconds=600.42)) == found(skewed)


def test_why_is_kept_short() -> None:
    assert len(found(replace(HEALTHY, engine=engine(state="failed", why="x" * 400)))["engine_down"]["why"]) == 400


def test_of_who_is_out_or_was_never_heard_nothing_is_said() -> None:
    ill = replace(ILL["clock_skew"][0], applied_hash=OLD, behind_since=ago(99))
    assert found(replace(ill, is_revoked=True)) == {}
    assert found(replace(ill, last_seen_at=None)) == {}


def test_of_several_the_gravest_is_told() -> None:
    both = found(replace(ILL["clock_skew"][0], engine=engine(state="down", why="gone", hash=None)))
    assert {*both} == {"clock_skew", "engine_down"}
    assert gravest(both) == "the engine is down: gone"


def test_states_go_from_what_is_surest_to_what_is_said() -> None:
    assert state(is_revoked=True, last_seen_at=None) == "revoked"
    assert state(last_seen_at=None) == "enrolled"
    assert state(last_seen_at=ago(3.1), engine_state="down") == "stale"
    assert state(engine_state="down", is_draining=True) == "down"
    assert state(engine_state="failed") == "failed"
    assert state(engine_state="starting", is_draining=True) == "starting"
    assert state(engine_state=None) == "starting"
    assert state(is_draining=True) == "draining"
    assert state(engine_state="draining") == "draining"
    assert state() == "ready"


def test_in_sync_is_what_agent_and_engine_both_say() -> None:
    def judged(kind: str, desired: str, applied: str, told: str | None) -> bool:
        return is_in_sync(kind=kind, desired_hash=desired, applied_hash=applied, engine_hash=told)

    assert judged("engine", NEW, NEW, NEW)
    assert not judged("engine", NEW, NEW, OLD)
    assert not judged("engine", NEW, OLD, NEW)
    assert judged("gateway", NEW, NEW, None)
    assert not judged("gateway", "", "", None)
