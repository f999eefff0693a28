"""What is wrong with agents, found in the database and kept there; and their states, on which both agree."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.fleet.agents import agent_revoke
from controlplane.fleet.formats import formats_needed
from controlplane.fleet.health import AGENT_STATES, Needed
from controlplane.fleet.health_update import conditions_update
from controlplane.fleet.heartbeats import Beat, heartbeats_write
from controlplane.fleet.models import Agent, AgentGeneration, RefusedCommands
from controlplane.fleet.selectors import agents_in_state
from controlplane.fleet.views import state_of
from tenants.actor import SYSTEM
from tenants.levels import FLEET, Place
from tenants.models import Organisation
from tests.database.factories import about_agent, make_agent, make_group, make_namespace, publish
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
NEW, OLD, STRANGE = "a" * 64, "b" * 64, "c" * 64
NOW = timezone.now()


def beating(
    name: str = "agent-1", *, holds: str = NEW, engine_holds: str | None = None, group: Any = None, **columns: Any
) -> Agent:
    """An agent that was to hold first OLD, then NEW, and holds the latter, unless told otherwise."""
    agent = make_agent(name, group=group)
    for number, hash_ in enumerate((OLD, NEW), start=1):
        at = NOW - timedelta(seconds=60 - 10 * number)
        AgentGeneration.objects.create(agent=agent, number=number, hash=hash_, at=at)
    generation = {OLD: 1, NEW: 2}.get(holds, 9)
    engine = {"boot": "e", "state": "ready", "why": None, "hash": engine_holds or holds}
    heartbeat = {"engine": engine, "applied": {"hash": holds, "generation": generation}}
    facts = {
        "desired_hash": NEW,
        "desired_generation": 2,
        "applied_hash": holds,
        "applied_generation": generation,
        "heartbeat": heartbeat,
        "last_seen_at": NOW,
    }
    Agent.objects.filter(pk=agent.pk).update(**{**facts, **columns})
    return Agent.objects.get(pk=agent.pk)


def kinds(agent: Agent, *, after: float = 0.0) -> set[str]:
    conditions_update(now=NOW + timedelta(seconds=after))
    agent.refresh_from_db()
    return {*agent.conditions}


def test_an_agent_that_holds_what_it_is_to_hold_is_well() -> None:
    assert kinds(beating()) == set()


def test_one_that_holds_something_older_is_behind_since_it_was_to_hold_more() -> None:
    agent = beating(holds=OLD)
    assert kinds(agent) == {"behind"}
    assert agent.conditions["behind"]["since"] == (NOW - timedelta(seconds=40)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_one_that_is_to_hold_something_new_every_second_and_follows_is_not_behind() -> None:
    agent = beating()
    AgentGeneration.objects.create(agent=agent, number=3, hash=OLD, at=NOW - timedelta(seconds=1))
    Agent.objects.update(desired_hash=OLD, desired_generation=3)
    assert kinds(agent) == set()
    assert kinds(agent, after=2.5) == {"behind"}


def test_one_that_was_never_to_hold_what_it_holds() -> None:
    assert kinds(beating(holds=STRANGE)) >= {"unknown_hash"}


def test_a_hash_it_was_to_hold_at_another_generation_is_not_known_at_this_one() -> None:
    agent = beating()
    Agent.objects.update(heartbeat={**agent.heartbeat, "applied": {"hash": NEW, "generation": 7}})
    assert kinds(agent) == {"unknown_hash"}


def test_an_engine_that_holds_something_else_than_its_sidecar_says() -> None:
    assert kinds(beating(engine_holds=OLD)) == {"engine_differs"}


def test_one_that_has_fallen_silent() -> None:
    agent = beating()
    assert kinds(agent, after=3.0) == set()
    assert kinds(agent, after=3.1) == {"stale"}


def test_of_one_that_was_never_heard_and_of_one_that_is_out_nothing_is_said() -> None:
    unheard, out = make_agent("agent-1"), beating("agent-2", holds=STRANGE)
    conditions_update(now=NOW)
    agent_revoke(actor=SYSTEM, agent=out)
    assert conditions_update(now=NOW) == []
    for agent in (unheard, out):
        agent.refresh_from_db()
        assert agent.conditions == {}


def test_refused_commands_are_told_for_ten_minutes() -> None:
    agent = beating()
    RefusedCommands.objects.create(agent=agent, reason="forged", count=2, last_what="apply x", last_at=NOW)
    assert kinds(agent) == {"refusing"}
    assert agent.conditions["refusing"]["why"] == "it refused commands: 2 forged; the last: apply x"
    Agent.objects.update(last_seen_at=NOW + timedelta(minutes=11))
    assert kinds(agent, after=660) == set()


def test_another_version_of_an_agent_is_told() -> None:
    assert kinds(beating(about=about_agent(version="0.0.1-old"))) <= {"version_skew"}
    assert kinds(beating("agent-2", about=about_agent(version="77.1.0"))) == {"version_skew"}


def test_only_who_has_news_is_named_and_nothing_is_written_where_there_are_none() -> None:
    beating("agent-1")
    beating("agent-2", holds=OLD)
    beating("agent-3", clock_skew_seconds=600.0)
    assert conditions_update(now=NOW) == ["agent-2", "agent-3"]
    with CaptureQueriesContext(connection) as queries:
        assert conditions_update(now=NOW) == []
    assert [one["sql"] for one in queries if one["sql"].startswith("UPDATE")] == []


def test_it_costs_the_same_however_many_there_are() -> None:
    def cost() -> int:
        conditions_update(now=NOW)
        with CaptureQueriesContext(connection) as queries:
            conditions_update(now=NOW)
        return len(queries)

    beating("agent-1", holds=OLD)
    one = cost()
    for number in range(2, 30):
        beating(f"agent-{number}", holds=OLD if number % 2 else NEW)
    assert cost() == one <= 4


def test_nothing_is_asked_of_the_history_of_who_holds_what_it_is_to_hold() -> None:
    beating("agent-1")
    conditions_update(now=NOW)
    with CaptureQueriesContext(connection) as queries:
        conditions_update(now=NOW)
    assert [one["sql"] for one in queries if "fleet_agentgeneration" in one["sql"]] == []
    Agent.objects.update(heartbeat={"engine": {}, "applied": {"hash": STRANGE, "generation": 2}})
    assert kinds(Agent.objects.get()) >= {"unknown_hash"}


# Formats


@pytest.fixture
def acme() -> Organisation:
    return make_organisation("acme")


def needed(group: Any) -> set[Needed]:
    return {*formats_needed().get(group.pk, ())}


def test_the_formats_that_policies_need_are_those_of_the_groups_own_namespaces(acme: Organisation) -> None:
    gpu, default = make_group("gpu"), make_agent().group
    chat = make_namespace(acme, "chat", group=gpu)
    assert needed(gpu) == needed(default) == {Needed("fp8")}
    publish(Place(acme, chat), kv_dtype="int8", models={"m": {"kv_dtype": "int4"}})
    assert needed(gpu) == {Needed("int8"), Needed("int4", "m")}
    assert needed(default) == {Needed("fp8")}
    publish(FLEET, kv_dtype="bf16")
    assert needed(default) == {Needed("bf16")}
    assert needed(make_group("nobodys")) == set()


def test_reading_them_again_is_one_question_until_something_is_done(acme: Organisation) -> None:
    formats_needed()
    with CaptureQueriesContext(connection) as queries:
        formats_needed()
    assert len(queries) == 1


def test_a_format_that_an_agent_could_do_and_cannot_any_more_is_told_while_a_policy_needs_it(
    acme: Organisation,
) -> None:
    agent = beating()
    assert kinds(agent) == set()
    assert agent.formats_once == ["bf16", "fp8"]
    Agent.objects.update(about=about_agent(kv_dtypes=["bf16"]))
    assert kinds(agent) == {"capability_lost"}
    assert agent.formats_once == ["bf16", "fp8"]
    publish(FLEET, kv_dtype="bf16")
    assert kinds(agent) == set()


def test_a_format_that_an_agent_never_could_do_is_others_to_do(acme: Organisation) -> None:
    publish(FLEET, kv_dtype="int4")
    assert kinds(beating()) == set()


# States


def test_the_database_and_the_pure_rule_agree_on_every_state() -> None:
    cadence = 0.5
    engines = [None, *({"state": one} for one in ("ready", "starting", "down", "draining", "failed")), {}]
    seen = [None, NOW, NOW - timedelta(seconds=3), NOW - timedelta(seconds=3.1)]
    group = make_agent("first").group
    made = [
        Agent(
            id=f"agent-{number}",
            kind="engine",
            group=group,
            token_hash=number.to_bytes(32, "big"),
            heartbeat={} if engine is None else {"engine": engine},
            last_seen_at=last,
            is_draining=drains,
            revoked_at=NOW if out else None,
        )
        for number, (engine, last, drains, out) in enumerate(product(engines, seen, (True, False), (True, False)))
    ]
    Agent.objects.bulk_create(made)
    expected = {state: {"first"} if state == "enrolled" else set() for state in AGENT_STATES}
    for agent in made:
        expected[state_of(agent, now=NOW, cadence=cadence)].add(agent.pk)
    found = {
        state: set(agents_in_state(state, now=NOW, cadence=cadence).values_list("pk", flat=True))
        for state in AGENT_STATES
    }
    assert found == expected
    assert all(found.values())


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=1)])
def test_an_agent_that_was_seen_before_the_clock_was_set_back_is_seen_anew_at_its_next_heartbeat(
    ahead: timedelta,
) -> None:
    agent = beating(last_seen_at=NOW + ahead)
    assert kinds(agent) == {"stale"}
    assert list(agents_in_state("stale", now=NOW, cadence=2.0)) == [agent]
    told = {**agent.heartbeat, "boot": "b", "sequence": 1}
    heartbeats_write({agent.pk: Beat(agent.pk, told, NOW, 0.0)}, [])
    agent.refresh_from_db()
    assert agent.last_seen_at == NOW
    assert kinds(agent) == set()
    assert list(agents_in_state("stale", now=NOW, cadence=2.0)) == []


def test_an_agent_that_waits_for_room_on_its_disk_says_so() -> None:
    agent = beating()
    why = "/srv/luminet/agent: cannot be written: No space left on device"
    agent.heartbeat["engine"]["why"] = why
    agent.save(update_fields=["heartbeat"])
    assert kinds(agent) == {"unwritable"}
    assert why in agent.conditions["unwritable"]["why"]
