"""From a publish to what lies in each agent's queue: on the real database and broker, opened with the agents' keys."""

import base64
import json
import os
import threading
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.fleet.broker import queue_key
from controlplane.fleet.keys import identity_secret, sealing_key, verifying_key
from controlplane.fleet.models import Agent, AgentGeneration, OperationStep, QualityResult
from controlplane.fleet.operations import operation_of_agents
from controlplane.rollouts import assigning, pushing, tasks, transport
from controlplane.rollouts.assigning import Assignment, PlannedStep, _assign, _steps_write, planning, states_assign
from controlplane.rollouts.desired import recent
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.plan import Push
from controlplane.rollouts.planner import plan_carry_out
from controlplane.rollouts.serving import snapshot_for
from controlplane.rollouts.sweeping import sweep
from engine_agent.contracts import sealing
from engine_agent.contracts.protocol import MAX_CHANGE_BYTES, Snapshot, policy_hash, snapshot_decode
from engine_agent.contracts.wire import MOST_COMMAND_CHARACTERS
from tenants.actor import SYSTEM
from tenants.audit import audited
from tenants.config.apply import config_apply
from tenants.config.document import ConfigDocument
from tenants.levels import FLEET, Place, level_of
from tenants.models import Namespace, Operation, Organisation
from tenants.services.namespaces import namespace_delete, namespace_update
from tenants.services.operations import operation_begin, purge
from tenants.services.organisations import organisation_delete
from tests.database.factories import make_agent, make_group, make_namespace, publish
from tests.fleet.queues import acknowledged, broker, change_followed, commands_taken, messages_taken
from tests.support.threads import Deed, at_once, failures
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def acme() -> Organisation:
    return make_organisation("acme")


def namespace(organisation: Organisation, slug: str = "default") -> Namespace:
    return Namespace.objects.select_related("organisation", "group").get(organisation=organisation, slug=slug)


def carry_out(seconds: float = 0) -> int:
    return plan_carry_out(now=later(seconds))


def agent(name: str = "agent-1") -> Agent:
    return Agent.objects.get(pk=name)


def held(name: str = "agent-1") -> Snapshot:
    """What it is to hold, as it fetches it."""
    found = snapshot_for(name)
    assert (found.hash, found.generation) == (agent(name).desired_hash, agent(name).desired_generation)
    return snapshot_decode(found.body)


def converged(*names: str) -> None:
    """Everybody holds what they are to hold, and nothing is under way."""
    carry_out(-100)
    for name in names:
        messages_taken(name)
    acknowledged(*names)


def ttl_of(snapshot: Snapshot, one: Namespace) -> int:
    return int(snapshot.policies[snapshot.entries[f"ns/{one.pk}"]["policy"]]["ttl_seconds"])


# States


def test_a_publish_becomes_a_command_that_leads_from_what_the_agent_holds_to_what_it_is_to_hold(
    acme: Organisation,
) -> None:
    make_agent("agent-1")
    converged("agent-1")
    before = held()
    publish(Place(acme), ttl_seconds=60)
    assert carry_out() == 1
    (command,) = commands_taken("agent-1")
    assert (command.agent, command.deed, command.generation) == ("agent-1", "apply", agent().desired_generation)
    assert (command.issued_at, command.expires_at) == (NOW.timestamp(), later(30).timestamp())
    after = change_followed(command, before)
    assert after.hash == command.body["target"] == agent().desired_hash
    assert ttl_of(after, namespace(acme)) == 60


def test_a_new_agent_is_told_to_pull_and_finds_what_the_command_names(acme: Organisation) -> None:
    make_agent("agent-1")
    carry_out()
    (command,) = commands_taken("agent-1")
    assert (command.body["base"], command.body["change"]) == (None, None)
    assert held().hash == command.body["target"]
    assert f"ns/{namespace(acme).pk}" in held().entries


def test_an_agent_that_fetches_before_anybody_planned_is_planned_for_on_the_spot(acme: Organisation) -> None:
    make_agent("agent-1")
    assert agent().desired_generation == 0
    assert held().hash == agent().desired_hash
    assert agent().desired_generation == 1


def test_what_an_agent_has_acknowledged_is_not_sent_again(acme: Organisation) -> None:
    make_agent("agent-1")
    converged("agent-1")
    assert carry_out() == carry_out(60) == 0
    assert messages_taken("agent-1") == []


def test_what_an_agent_held_before_comes_back_under_a_higher_generation(acme: Organisation) -> None:
    make_agent("agent-1")
    carry_out()
    first = agent().desired_hash
    publish(FLEET, ttl_seconds=60)
    carry_out()
    publish(FLEET)
    carry_out()
    hashes = dict(AgentGeneration.objects.filter(agent="agent-1").values_list("number", "hash"))
    assert sorted(hashes) == [1, 2, 3]
    assert hashes[1] == hashes[3] == agent().desired_hash == first != hashes[2]


def test_generations_long_gone_are_forgotten(acme: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigning, "GENERATIONS_KEPT", 3)
    make_agent("agent-1")
    for seconds in range(1, 6):
        publish(FLEET, ttl_seconds=seconds)
        carry_out()
    numbers = AgentGeneration.objects.filter(agent="agent-1").order_by("number").values_list("number", flat=True)
    assert list(numbers) == [3, 4, 5]


def test_more_agents_than_go_at_once_all_get_theirs(acme: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "AT_ONCE", 2)
    names = [f"agent-{number}" for number in range(5)]
    for name in names:
        make_agent(name)
    assert carry_out() == 5
    assert [len(commands_taken(name)) for name in names] == [1] * 5


def test_what_changes_nothing_for_an_agent_gives_it_no_generation(acme: Organisation) -> None:
    make_agent("agent-1")
    carry_out()
    make_group("elsewhere")
    carry_out()
    assert agent().desired_generation == 1


def test_groups_hear_only_of_their_own_namespaces(acme: Organisation) -> None:
    elsewhere = make_group("elsewhere")
    there = make_namespace(acme, "there", group=elsewhere)
    make_agent("agent-1")
    make_agent("agent-2", group=elsewhere)
    converged("agent-1", "agent-2")
    publish(Place(acme, there), ttl_seconds=60)
    assert carry_out() == 1
    assert len(messages_taken("agent-2")) == 1
    assert f"ns/{there.pk}" not in held("agent-1").entries


def test_a_push_without_an_answer_is_repeated_with_growing_waits(acme: Organisation) -> None:
    make_agent("agent-1")
    sent = [seconds for seconds in range(70) if carry_out(seconds)]
    assert sent == [0, 2, 6, 14, 30, 60]
    generations = {one.generation for one in commands_taken("agent-1")}
    assert (generations, agent().push_attempts) == ({1}, 6)


def test_a_newer_state_replaces_one_that_waits_for_its_retry(acme: Organisation) -> None:
    make_agent("agent-1")
    for seconds in (0, 2, 6):
        carry_out(seconds)
    publish(FLEET, ttl_seconds=60)
    carry_out(6.1)
    commands = commands_taken("agent-1")
    assert [one.generation for one in commands] == [1, 1, 1, 2]
    assert (agent().push_generation, agent().push_attempts, agent().push_retry_at) == (2, 1, later(8.1))


def test_changes_that_follow_each_other_closely_lead_on_from_each_other(acme: Organisation) -> None:
    make_agent("agent-1")
    converged("agent-1")
    state = held()
    for seconds in (60, 120, 180):
        publish(FLEET, ttl_seconds=seconds)
        carry_out(seconds / 1000)
    for command in commands_taken("agent-1"):
        assert command.body["base"] == state.hash
        state = change_followed(command, state)
    assert state.hash == agent().desired_hash


def test_a_change_that_is_too_long_is_left_to_be_pulled(acme: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    make_agent("agent-1")
    converged("agent-1")
    monkeypatch.setattr(pushing, "MAX_CHANGE_BYTES", 100)
    publish(FLEET, ttl_seconds=60)
    carry_out()
    (command,) = commands_taken("agent-1")
    assert command.body == {"base": agent().applied_hash, "target": agent().desired_hash, "change": None}


def test_the_longest_change_there_is_still_makes_a_command_that_agents_read() -> None:
    change = base64.b64encode(os.urandom(MAX_CHANGE_BYTES - pushing.SEAL_BYTES)).decode()
    push = Push("agent-1", 1, "a" * 64, "b" * 64, 1, NOW)
    outgoing = transport.Outgoing(pushing._apply(push, change, NOW), 1)
    transport.commands_send([outgoing], url=settings.ENVIRONMENT.redis_url)
    (message,) = messages_taken("agent-1")
    ((sealed,), _, _) = json.loads(base64.b64decode(message["body"]))
    assert MOST_COMMAND_CHARACTERS * 0.8 < len(sealed) <= MOST_COMMAND_CHARACTERS


def test_from_a_state_that_nobody_remembers_it_is_left_to_be_pulled(acme: Organisation) -> None:
    make_agent("agent-1")
    converged("agent-1")
    Agent.objects.update(applied_hash="f" * 64)
    carry_out()
    (command,) = commands_taken("agent-1")
    assert (command.body["base"], command.body["change"]) == ("f" * 64, None)


def test_a_queue_that_nobody_reads_stays_short_and_is_forgotten(acme: Organisation) -> None:
    make_agent("agent-1")
    for number in range(transport.MOST_QUEUED + 5):
        publish(FLEET, ttl_seconds=number + 1)
        carry_out(number / 1000)
    with broker() as client:
        assert 0 < client.ttl(queue_key("agent-1")) <= transport.QUEUE_SECONDS
    commands = commands_taken("agent-1")
    assert len(commands) == transport.MOST_QUEUED
    assert commands[-1].body["target"] == agent().desired_hash


def test_a_revoked_agent_is_to_hold_nothing_new_and_is_sent_nothing(acme: Organisation) -> None:
    make_agent("agent-1")
    carry_out()
    messages_taken("agent-1")
    Agent.objects.update(revoked_at=NOW)
    publish(FLEET, ttl_seconds=60)
    assert carry_out(5) == 0
    assert (agent().desired_generation, messages_taken("agent-1")) == (1, [])


def test_after_a_backup_was_brought_back_generations_go_on_above_what_agents_hold(acme: Organisation) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    converged("agent-1", "agent-2")
    Agent.objects.filter(pk="agent-1").update(applied_generation=40, applied_hash=agent().desired_hash)
    beating = {"applied": {"generation": 70, "hash": "f" * 64}}
    Agent.objects.filter(pk="agent-2").update(heartbeat=beating)
    carry_out()
    assert (agent("agent-1").desired_generation, agent("agent-2").desired_generation) == (41, 71)
    (command,) = commands_taken("agent-1")
    assert (command.generation, command.body["base"]) == (41, command.body["target"])
    assert change_followed(command, held()).hash == agent().desired_hash


def test_a_generation_beyond_belief_breaks_nobody_elses_plan(acme: Organisation) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    Agent.objects.filter(pk="agent-1").update(heartbeat={"applied": {"generation": 2**63 - 1, "hash": "f" * 64}})
    assert carry_out() == 2
    publish(FLEET, ttl_seconds=60)
    assert carry_out(1) == 2
    assert agent("agent-2").desired_generation == 2


def test_each_agent_can_read_its_own_commands_only(acme: Organisation) -> None:
    make_agent("agent-1")
    carry_out()
    (message,) = messages_taken("agent-1")
    ((sealed,), _, _) = json.loads(base64.b64decode(message["body"]))
    verifying = sealing.verifying_key(verifying_key())
    with pytest.raises(sealing.Unsealable, match="forged"):
        sealing.command_open(sealed, agent="agent-2", key=sealing_key("agent-2", 1), verifying=verifying)
    with pytest.raises(sealing.Unsealable, match="corrupt"):
        sealing.command_open(sealed, agent="agent-1", key=sealing_key("agent-1", 2), verifying=verifying)


def test_the_key_of_a_message_follows_the_agents_key_number(acme: Organisation) -> None:
    make_agent("agent-1")
    Agent.objects.update(key_number=3)
    carry_out()
    assert len(commands_taken("agent-1", key_number=3)) == 1


def test_many_agents_cost_as_many_queries_as_few(acme: Organisation) -> None:
    def queries(ttl_seconds: int) -> int:
        publish(FLEET, ttl_seconds=ttl_seconds)
        with CaptureQueriesContext(connection) as seen:
            carry_out()
        return len(seen)

    make_agent("agent-0")
    queries(1)
    few = queries(2)
    for number in range(1, 10):
        make_agent(f"agent-{number}")
    assert queries(3) == few


# Rollouts


def rollout(place: Place, *reached: str, **changes: Any) -> Rollout:
    level = level_of(place)
    values: dict[str, Any] = {
        "level": level,
        "place": place.name,
        "revision": level.revision,
        "base_revision": level.revision - 1,
        "strategy": "canary",
        "steps": [10, 100],
        "bake_seconds": 60,
        "reached": list(reached),
        "created_by": "operator",
    }
    return Rollout.objects.create(**values | changes)


@pytest.fixture
def two(acme: Organisation) -> Organisation:
    make_agent("agent-1")
    make_agent("agent-2", address="http://127.0.0.1:8102")
    return acme


@pytest.mark.parametrize("of", ["fleet", "organisation", "namespace"])
def test_agents_that_a_rollout_has_not_reached_get_the_older_policy(two: Organisation, of: str) -> None:
    chat = make_namespace(two, "chat")
    place = {"fleet": FLEET, "organisation": Place(two), "namespace": Place(two, chat)}[of]
    publish(place, ttl_seconds=60)
    converged("agent-1", "agent-2")
    publish(place, ttl_seconds=120)
    made = rollout(place, "agent-1")
    assert carry_out() == 1
    assert [ttl_of(held(name), chat) for name in ("agent-1", "agent-2")] == [120, 60]
    if of == "namespace":
        revisions = [held(name).entries[f"ns/{chat.pk}"]["revision"] for name in ("agent-1", "agent-2")]
        assert revisions == [2, 1]
    made.reached = ["agent-1", "agent-2"]
    made.save()
    assert carry_out() == 1
    assert ttl_of(held("agent-2"), chat) == 120


def test_what_is_held_back_is_the_policy_alone(two: Organisation) -> None:
    """A purge comes to everybody at once, also to agents that hold an older policy."""
    publish(Place(two), ttl_seconds=60)
    publish(Place(two), ttl_seconds=120)
    rollout(Place(two), "agent-1")
    default = namespace(two)
    before = held("agent-2")
    purge(actor=SYSTEM, organisation=two)
    carry_out()
    after = held("agent-2")
    assert ttl_of(after, default) == 60
    key = f"ns/{default.pk}"
    assert after.entries[key]["epoch"] == before.entries[key]["epoch"] + 1
    assert after.entries[key]["key"] != before.entries[key]["key"]


def test_before_the_first_revision_the_held_back_policy_is_what_is_inherited(two: Organisation) -> None:
    default = namespace(two)
    plain = ttl_of(held("agent-2"), default)
    publish(Place(two, default), ttl_seconds=plain + 1)
    rollout(Place(two, default), "agent-1")
    carry_out()
    assert ttl_of(held("agent-1"), default) == plain + 1
    assert ttl_of(held("agent-2"), default) == plain
    assert held("agent-2").entries[f"ns/{default.pk}"]["revision"] == 0


def test_an_agent_that_enrols_at_the_last_step_holds_the_newest(two: Organisation) -> None:
    publish(Place(two), ttl_seconds=60)
    publish(Place(two), ttl_seconds=120)
    rollout(Place(two), "agent-1", "agent-2", step=1)
    make_agent("agent-3")
    carry_out()
    assert ttl_of(held("agent-3"), namespace(two)) == 120


def test_agents_hold_what_a_superseded_rollout_had_brought_them(two: Organisation) -> None:
    for seconds in (60, 120, 180):
        publish(Place(two), ttl_seconds=seconds)
    rollout(Place(two), base_revision=1, held_revisions={"agent-1": 2})
    carry_out()
    assert [ttl_of(held(name), namespace(two)) for name in ("agent-1", "agent-2")] == [120, 60]


def test_a_rollout_of_one_level_leaves_what_others_inherit_alone(two: Organisation) -> None:
    other = make_organisation("other")
    publish(Place(two), ttl_seconds=60)
    publish(Place(two), ttl_seconds=120)
    rollout(Place(two), "agent-1")
    publish(Place(other), ttl_seconds=7)
    carry_out()
    assert ttl_of(held("agent-2"), namespace(other)) == 7


def test_rollouts_of_several_levels_hold_back_each_their_own(two: Organisation) -> None:
    default = namespace(two)
    publish(FLEET, ttl_seconds=60, weight=1.0)
    publish(FLEET, ttl_seconds=60, weight=2.0)
    publish(Place(two, default), ttl_seconds=70)
    publish(Place(two, default), ttl_seconds=80)
    rollout(FLEET, "agent-1")
    rollout(Place(two, default), "agent-2")
    carry_out()

    def policy(name: str) -> tuple[int, float]:
        snapshot = held(name)
        found = snapshot.policies[snapshot.entries[f"ns/{default.pk}"]["policy"]]
        return found["ttl_seconds"], found["weight"]

    assert (policy("agent-1"), policy("agent-2")) == ((70, 2.0), (80, 1.0))


def test_a_rolled_back_rollout_brings_a_higher_generation_with_the_older_policy(two: Organisation) -> None:
    publish(Place(two), ttl_seconds=60)
    publish(Place(two), ttl_seconds=120)
    made = rollout(Place(two), "agent-1")
    carry_out()
    highest = agent("agent-1").desired_generation
    made.state, made.finished_at = "rolled_back", NOW
    made.save()
    publish(Place(two), ttl_seconds=60)
    carry_out()
    assert [ttl_of(held(name), namespace(two)) for name in ("agent-1", "agent-2")] == [60, 60]
    assert agent("agent-1").desired_generation == highest + 1


# Gateways


def entries(prefix: str, name: str = "gateway-1") -> dict[str, Any]:
    return {key: dict(entry) for key, entry in held(name).entries.items() if key.startswith(f"{prefix}/")}


def test_a_gateway_holds_its_groups_engines_as_routes(two: Organisation) -> None:
    make_agent("elsewhere", group=make_group("elsewhere"))
    make_agent("gateway-1", kind="gateway")
    carry_out()
    routes = entries("route")
    assert routes.keys() == {"route/agent-1", "route/agent-2"}
    assert routes["route/agent-2"]["address"] == "http://127.0.0.1:8102"
    assert set(routes["route/agent-2"]["models"]) == {"m"}
    assert base64.b64decode(routes["route/agent-2"]["identity"]) == identity_secret("agent-2", 1)


def test_engines_know_nothing_of_routes(two: Organisation) -> None:
    make_agent("gateway-1", kind="gateway")
    carry_out()
    assert {key.partition("/")[0] for key in held("agent-1").entries} == {"org", "ns"}


@pytest.mark.parametrize(
    ("changes", "state"), [({"is_draining": True}, "draining"), ({"revoked_at": NOW}, None), ({}, "active")]
)
def test_a_gateway_is_told_when_an_engine_drains_or_is_gone(
    two: Organisation, changes: dict[str, Any], state: str | None
) -> None:
    make_agent("gateway-1", kind="gateway")
    converged("gateway-1")
    Agent.objects.filter(pk="agent-2").update(**changes)
    carry_out()
    assert len(commands_taken("gateway-1")) == (1 if changes else 0)
    assert entries("route").get("route/agent-2", {}).get("state") == state


def test_a_format_without_a_passing_result_is_no_route_and_a_gate(two: Organisation) -> None:
    make_agent("gateway-1", kind="gateway")
    carry_out()
    assert entries("route")["route/agent-1"]["models"]["m"]["kv_dtypes"] == ["bf16"]
    (gate,) = entries("gate").values()
    assert (gate["model"], set(gate["refused"])) == ("m", {"fp8"})
    QualityResult.objects.create(
        model="m", revision="r1", kv_dtype="fp8", backend="simulated", verdict="passed", created_by="operator"
    )
    carry_out()
    assert entries("route")["route/agent-1"]["models"]["m"]["kv_dtypes"] == ["bf16", "fp8"]
    assert entries("gate") == {}


def test_a_gateway_keeps_the_share_of_a_rollout_and_goes_with_its_newest_revision(two: Organisation) -> None:
    make_agent("gateway-1", kind="gateway")
    default = namespace(two)
    publish(Place(two), ttl_seconds=60)
    publish(Place(two), ttl_seconds=120)
    made = rollout(Place(two), "agent-1")
    carry_out()
    assert entries("split") == {
        f"split/{made.pk}": {
            "org": str(two.pk),
            "namespaces": [str(default.pk)],
            "agents": ["agent-1"],
            "share": 0.1,
        }
    }
    assert ttl_of(held("gateway-1"), default) == 120
    made.state, made.finished_at = "done", NOW
    made.save()
    carry_out()
    assert entries("split") == {}


def gateways(*names: str) -> None:
    """That many, all heard just now."""
    for name in names:
        make_agent(name, kind="gateway")
    Agent.objects.filter(pk__in=names).update(last_seen_at=NOW)


def test_gateways_of_a_group_are_told_of_each_other_and_engines_are_not(two: Organisation) -> None:
    gateways("gateway-1", "gateway-2")
    make_agent("gateway-3", kind="gateway", group=make_group("elsewhere"))
    carry_out()
    told = {"doors/all": {"org": "fleet", "gateways": ["gateway-1", "gateway-2"]}}
    assert [entries("doors", name) for name in ("gateway-1", "gateway-2")] == [told, told]
    assert entries("doors", "gateway-3") == entries("doors", "agent-1") == {}


@pytest.mark.parametrize(
    ("gone", "seconds"),
    [({"is_draining": True}, 0), ({"revoked_at": NOW}, 0), ({"last_seen_at": later(-1)}, 60)],
    ids=["drained", "revoked", "silent for a minute"],
)
def test_a_gateway_that_lets_nobody_in_is_no_door_any_more_and_the_others_are_told(
    two: Organisation, gone: dict[str, Any], seconds: float
) -> None:
    others = ["gateway-1", "gateway-2"]
    gateways(*others, "gateway-3")
    converged(*others, "gateway-3")
    before = held("gateway-1")
    assert before.entries["doors/all"]["gateways"] == [*others, "gateway-3"]
    Agent.objects.filter(pk="gateway-3").update(**gone)
    Agent.objects.filter(pk__in=others).update(last_seen_at=later(seconds))
    carry_out(seconds)
    for name in others:
        (command,) = commands_taken(name)
        assert change_followed(command, before).entries["doors/all"]["gateways"] == others
    Agent.objects.filter(pk="gateway-3").update(is_draining=False, revoked_at=None, last_seen_at=later(seconds))
    carry_out(seconds + 1)
    assert entries("doors")["doors/all"]["gateways"] == [*others, "gateway-3"]


def test_a_gateway_that_was_silent_for_less_than_a_minute_has_its_share(two: Organisation) -> None:
    gateways("gateway-1", "gateway-2")
    Agent.objects.filter(pk="gateway-1").update(last_seen_at=later(59))
    carry_out(59)
    assert entries("doors")["doors/all"]["gateways"] == ["gateway-1", "gateway-2"]


def test_where_one_gateway_is_left_it_is_told_that_there_is_no_other(two: Organisation) -> None:
    gateways("gateway-1", "gateway-2")
    carry_out()
    assert entries("doors")
    Agent.objects.filter(pk="gateway-2").update(is_draining=True)
    carry_out()
    assert entries("doors") == {}


# Operations that a state proves


def step_of(operation: Operation, name: str = "agent-1") -> OperationStep:
    return OperationStep.objects.get(operation=operation, agent=name)


def test_a_purge_waits_for_the_generation_that_has_it(two: Organisation) -> None:
    converged("agent-1", "agent-2")
    operation = purge(actor=SYSTEM, organisation=two)
    assert (operation.state, operation.awaited_agents) == ("running", ["agent-1", "agent-2"])
    assert step_of(operation).generation is None
    carry_out()
    assert step_of(operation).generation == agent().desired_generation == 2


def test_an_operation_that_changes_nothing_for_an_agent_ends_with_what_it_acknowledged(two: Organisation) -> None:
    """Of an organisation that another group serves its agents hold nothing; what they hold proves just that."""
    converged("agent-1", "agent-2")
    operation = operation_begin(actor=SYSTEM, kind="apply", scope="acme", now=NOW, group_ids={namespace(two).group_id})
    assert carry_out() == 0
    operation.refresh_from_db()
    assert (operation.state, sorted(one["agent"] for one in operation.receipts)) == ("done", ["agent-1", "agent-2"])


def test_the_operation_of_a_rollout_waits_for_each_agent_until_it_is_reached(two: Organisation) -> None:
    publish(Place(two), ttl_seconds=60)
    converged("agent-1", "agent-2")
    with audited():
        publish(Place(two), ttl_seconds=120)
        operation = operation_begin(
            actor=SYSTEM, kind="publish", scope="acme", now=NOW, group_ids={namespace(two).group_id}
        )
        made = rollout(Place(two), "agent-1", operation_id=operation.pk)
    carry_out()
    assert step_of(operation, "agent-1").generation == agent("agent-1").desired_generation
    assert step_of(operation, "agent-2").generation is None
    made.reached = ["agent-1", "agent-2"]
    made.save()
    carry_out()
    assert step_of(operation, "agent-2").generation == agent("agent-2").desired_generation


def test_deleting_a_namespace_waits_for_the_agents_of_its_group(acme: Organisation) -> None:
    there = make_namespace(acme, "there", group=make_group("elsewhere"))
    make_agent("agent-1")
    make_agent("agent-2", group=there.group)
    operation = namespace_delete(actor=SYSTEM, namespace=there, expected=None)
    assert operation.awaited_agents == ["agent-2"]


def test_deleting_an_organisation_waits_for_the_agents_of_all_its_groups(acme: Organisation) -> None:
    there = make_namespace(acme, "there", group=make_group("elsewhere"))
    make_agent("agent-1")
    make_agent("agent-2", group=there.group)
    make_agent("agent-3", group=make_group("a-third"))
    operation = organisation_delete(actor=SYSTEM, organisation=acme, expected=None)
    assert operation.awaited_agents == ["agent-1", "agent-2"]


def test_applying_a_file_waits_for_the_agents_of_what_it_changes(acme: Organisation) -> None:
    make_namespace(acme, "there", group=make_group("elsewhere"))
    make_agent("agent-1")
    make_agent("agent-2", group=make_group("a-third"))
    document = ConfigDocument.model_validate({"version": 1, "organisations": {"acme": {"policy": {"ttl_seconds": 60}}}})
    applied = config_apply(actor=SYSTEM, document=document)
    assert applied.operation is not None
    assert applied.operation.awaited_agents == ["agent-1"]


def test_a_namespace_that_moves_leaves_its_old_group_and_comes_to_the_new(acme: Organisation) -> None:
    elsewhere, chat = make_group("elsewhere"), make_namespace(acme, "chat")
    make_agent("agent-1")
    make_agent("agent-2", group=elsewhere)
    converged("agent-1", "agent-2")
    namespace_update(actor=SYSTEM, namespace=chat, group=elsewhere, expected=None)
    assert carry_out() == 2
    assert f"ns/{chat.pk}" not in held("agent-1").entries
    assert f"ns/{chat.pk}" in held("agent-2").entries


# Operations that are commands


def drain(*names: str, seconds: float = 60) -> Operation:
    with audited():
        return operation_of_agents(actor=SYSTEM, deed="drain", agents=names, scope="fleet", now=NOW, seconds=seconds)


def test_an_operation_is_sent_until_its_receipt_or_its_deadline(two: Organisation) -> None:
    converged("agent-1", "agent-2")
    operation = drain("agent-1", seconds=8)
    sent = [seconds for seconds in range(20) if carry_out(seconds)]
    assert sent == [0, 2, 6]
    commands = commands_taken("agent-1")
    assert {one.deed for one in commands} == {"operation"}
    assert commands[0].body == {
        "operation": str(operation.pk),
        "deed": "drain",
        "arguments": {},
        "deadline": later(8).timestamp(),
    }
    assert len({one.id for one in commands}) == 3
    assert messages_taken("agent-2") == []


def test_an_operation_that_ended_is_not_sent_any_more(two: Organisation) -> None:
    converged("agent-1", "agent-2")
    drain("agent-1")
    carry_out()
    OperationStep.objects.update(state="done", done_at=NOW)
    assert carry_out(2) == 0


# Several planners


def test_a_step_never_waits_for_another_planners_state_of_the_same_number(two: Organisation) -> None:
    """It may be from before the operation: then holding it proves nothing."""
    carry_out()
    operation = purge(actor=SYSTEM, organisation=two)
    planned = [PlannedStep(step_of(operation).pk, "agent-1", 1)]
    _steps_write(planned, {"agent-1": "e" * 64})
    assert step_of(operation).generation is None
    _steps_write(planned, {"agent-1": agent().desired_hash})
    assert step_of(operation).generation == 1


def test_an_assignment_made_on_what_is_no_longer_so_is_nothing(two: Organisation) -> None:
    carry_out()
    stale = [Assignment("agent-1", 0, 1, "e" * 64), Assignment("agent-2", 1, 2, "f" * 64)]
    assert _assign(stale, now=NOW) == ["agent-2"]
    assert agent("agent-1").desired_hash != "e" * 64
    assert agent("agent-2").desired_generation == 2


@pytest.mark.django_db(transaction=True)
def test_two_planners_at_once_send_each_state_once_and_in_order() -> None:
    acme = make_organisation("acme")
    names = [f"agent-{number}" for number in range(8)]
    for name in names:
        make_agent(name)
    converged(*names)

    def planner() -> None:
        for _ in range(5):
            plan_carry_out(now=timezone.now())

    def publisher() -> None:
        for seconds in range(1, 9):
            publish(Place(acme), ttl_seconds=seconds)

    assert failures(at_once(planner, planner, planner, publisher)) == []
    plan_carry_out(now=timezone.now())
    for name in names:
        commands = commands_taken(name)
        first_of_each = list(dict.fromkeys(one.generation for one in commands))
        assert first_of_each == sorted(first_of_each)
        assert commands[-1].body["target"] == agent(name).desired_hash
        recorded = dict(AgentGeneration.objects.filter(agent=name).values_list("number", "hash"))
        assert {one.generation: one.body["target"] for one in commands}.items() <= recorded.items()
        assert sorted(recorded) == list(range(1, agent(name).desired_generation + 1))
    assert ttl_of(held(names[0]), namespace(acme)) == 8


@pytest.mark.django_db(transaction=True)
def test_while_one_plans_another_waits_and_finds_it_done() -> None:
    make_organisation("acme")
    make_agent("agent-1")
    order: list[str] = []

    def other() -> None:
        plan_carry_out(now=timezone.now())
        order.append("other")
        connection.close()

    with planning():
        waiting = threading.Thread(target=other)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        states_assign(now=timezone.now())
        order.append("first")
    waiting.join()
    assert order == ["first", "other"]
    assert agent().desired_generation == 1


@pytest.mark.django_db(transaction=True)
def test_who_waits_too_long_for_another_planner_is_told_so() -> None:
    make_organisation("acme")
    make_agent("agent-1")

    def impatient(deed: Deed) -> Deed:
        def run() -> Any:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '50ms'")
            return deed()

        return run

    with planning():
        deeds: list[Deed] = [
            lambda: plan_carry_out(now=NOW),
            lambda: snapshot_for("agent-1"),
            tasks.push,
            lambda: sweep(now=NOW),
        ]
        outcomes = at_once(*map(impatient, deeds))
    assert [type(one).__name__ for one in outcomes] == ["PlanningBusy", "SnapshotNotPlanned", "NoneType", "list"]
    assert outcomes[3] == ["plan"]
    assert carry_out() == 1


@pytest.mark.django_db(transaction=True)
def test_a_connection_dropped_while_planning_leaves_nothing_half_done_and_nothing_locked() -> None:
    make_organisation("acme")
    make_agent("agent-1")
    dropped: list[int] = []

    def drop(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "INSERT INTO fleet_agentgeneration" in sql and not dropped:
            dropped.append(connection.connection.info.backend_pid)
            with psycopg.connect(os.environ["LUMINET_DATABASE_URL"], dbname="postgres") as other:
                other.execute("SELECT pg_terminate_backend(%s)", dropped)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(drop), pytest.raises(OperationalError):
        carry_out()
    assert dropped
    assert (agent().desired_generation, AgentGeneration.objects.count()) == (0, 0)
    assert carry_out(1) == 1
    assert [one.generation for one in commands_taken("agent-1")] == [1]


# What is kept in the process


def test_what_was_made_here_is_remembered_for_changes_from_it(two: Organisation) -> None:
    carry_out()
    assert recent.get(agent().desired_hash) is not None
    assert recent.get("f" * 64) is None


def test_policies_of_a_snapshot_are_those_it_refers_to(two: Organisation) -> None:
    publish(Place(two), ttl_seconds=60)
    publish(Place(two), ttl_seconds=120)
    rollout(Place(two), "agent-1")
    carry_out()
    snapshot = held("agent-2")
    assert {policy_hash(one) for one in snapshot.policies.values()} == set(snapshot.policies)
    assert {one["ttl_seconds"] for one in snapshot.policies.values()} == {60}
