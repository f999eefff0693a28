"""Operations and their receipts on the real database: begun, proved, dropped, late, and never twice."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.agents import agent_drain, agent_revoke
from controlplane.fleet.heartbeats import Beat, heartbeats_write
from controlplane.fleet.models import Agent, AgentGeneration, OperationStep, PurgeProof, RefusedCommands
from controlplane.fleet.operations import steps_settle, steps_sweep
from controlplane.fleet.recording import batches_store
from engine_agent.contracts.wire import Batch, Report
from tenants.actor import SYSTEM
from tenants.models import Namespace, Operation, Organisation
from tenants.services.namespaces import namespace_delete
from tenants.services.operations import operation_begin, purge
from tenants.services.organisations import remains_remove
from tests.database.factories import make_agent, make_group, make_namespace
from tests.fleet.doors import HASH, applied, heartbeat_of, purged, receipt, refused
from tests.support.threads import at_once, failures, while_held
from tests.web.api import Api, make_organisation, said

pytestmark = pytest.mark.django_db
OTHER = "b" * 64


def told(agent: str, *reports: Report, first: int = 1, spool: str = "s") -> None:
    batches_store({agent: Batch(0.0, spool, first, reports, None)}, now=timezone.now())


def planned(generation: int, hash_: str = HASH) -> None:
    """Every agent is to hold this from now on, with whatever operations asked for."""
    for agent in Agent.objects.all():
        AgentGeneration.objects.create(agent=agent, number=generation, hash=hash_, at=timezone.now())
    Agent.objects.update(desired_generation=generation, desired_hash=hash_)
    OperationStep.objects.filter(generation=None, deed="state").update(generation=generation)


def receipts(operation: Operation) -> list[tuple[str, str, int, int]]:
    operation.refresh_from_db()
    return [(one["agent"], one["scope"], one["blocks"], one["bytes"]) for one in operation.receipts]


def state(operation: Operation) -> tuple[str, list[str]]:
    operation.refresh_from_db()
    return operation.state, operation.awaited_agents


@pytest.fixture
def acme() -> Organisation:
    return make_organisation("acme", "chat")


def of(organisation: Organisation, slug: str) -> Namespace:
    return Namespace.objects.select_related("organisation").get(organisation=organisation, slug=slug)


# Beginnings


def test_a_purge_awaits_the_agents_of_its_groups_and_no_others(acme: Organisation) -> None:
    far = make_group("far")
    for name, group in (("agent-1", None), ("agent-2", None), ("agent-3", far)):
        make_agent(name, group=group)
    make_agent("gateway-1", kind="gateway")
    agent_revoke(actor=SYSTEM, agent=Agent.objects.get(pk="agent-2"))
    assert state(purge(actor=SYSTEM, organisation=acme)) == ("running", ["agent-1", "gateway-1"])
    make_namespace(acme, "elsewhere", group=far)
    assert state(purge(actor=SYSTEM, organisation=acme)) == ("running", ["agent-1", "agent-3", "gateway-1"])
    one = purge(actor=SYSTEM, organisation=acme, namespace=of(acme, "elsewhere"))
    assert state(one) == ("running", ["agent-3"])


def test_where_no_agent_is_concerned_an_operation_is_done_at_once(acme: Organisation) -> None:
    assert state(purge(actor=SYSTEM, organisation=acme)) == ("done", [])
    make_agent()
    assert state(operation_begin(actor=SYSTEM, kind="apply", scope="x", now=timezone.now())) == ("done", [])


def test_many_agents_cost_no_more_queries_than_few(
    acme: Organisation, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        make_agent(f"agent-{number}")
    group = Namespace.objects.values_list("group", flat=True)[0]
    with django_assert_max_num_queries(6):
        operation_begin(actor=SYSTEM, kind="apply", scope="x", now=timezone.now(), group_ids=[group])


# Proofs


def test_a_purge_is_done_when_every_agent_has_proved_it_with_what_it_proved(acme: Organisation) -> None:
    make_agent("agent-1")
    make_agent("agent-2")
    planned(1)
    operation = purge(actor=SYSTEM, organisation=acme)
    chat, default = of(acme, "chat").pk, of(acme, "default").pk
    told("agent-1", applied(1))
    assert state(operation) == ("running", ["agent-1", "agent-2"])
    planned(2)
    told("agent-1", purged(chat, 5), purged(default, 2), applied(2), first=2)
    assert state(operation) == ("running", ["agent-2"])
    told("agent-2", purged(chat, 1))
    assert PurgeProof.objects.count() == 1
    told("agent-2", applied(2), first=2)
    assert state(operation) == ("done", [])
    assert operation.finished_at is not None
    assert receipts(operation) == [("agent-1", "acme", 7, 7000), ("agent-2", "acme", 1, 1000)]
    assert not PurgeProof.objects.exists()


def test_a_receipt_counts_what_is_of_its_own_scope(acme: Organisation) -> None:
    make_agent()
    globex = make_organisation("globex")
    chat, default, theirs = of(acme, "chat"), of(acme, "default"), of(globex, "default")
    operations = [
        purge(actor=SYSTEM, organisation=acme, namespace=chat),
        purge(actor=SYSTEM, organisation=acme),
        purge(actor=SYSTEM, organisation=globex),
    ]
    planned(1)
    told("agent-1", purged(chat.pk, 1), purged(default.pk, 2), purged(theirs.pk, 4), applied(1))
    assert [receipts(one) for one in operations] == [
        [("agent-1", "acme/chat", 1, 1000)],
        [("agent-1", "acme", 3, 3000)],
        [("agent-1", "globex", 4, 4000)],
    ]


def test_what_was_deleted_is_removed_only_after_every_agent_has_proved_it(acme: Organisation) -> None:
    make_agent()
    chat = of(acme, "chat")
    operation = namespace_delete(actor=SYSTEM, namespace=chat, expected=None)
    assert state(operation) == ("running", ["agent-1"])
    assert remains_remove() == 0
    planned(1)
    told("agent-1", purged(chat.pk, 9), applied(1))
    assert receipts(operation) == [("agent-1", "acme/chat", 9, 9000)]
    assert remains_remove() == 1


def test_an_agent_that_was_away_proves_several_purges_when_it_comes_back(acme: Organisation) -> None:
    make_agent()
    first, second = purge(actor=SYSTEM, organisation=acme), purge(actor=SYSTEM, organisation=acme)
    planned(1)
    third = purge(actor=SYSTEM, organisation=acme)
    planned(2)
    told("agent-1", purged(of(acme, "chat").pk, 3, epoch=4), applied(2))
    assert [state(one) for one in (first, second, third)] == [("done", [])] * 3


def test_an_operation_that_leaves_a_state_as_it_was_is_settled_without_a_word_of_the_agent(acme: Organisation) -> None:
    make_agent()
    planned(1)
    told("agent-1", applied(1))
    operation = purge(actor=SYSTEM, organisation=acme)
    assert steps_settle(now=timezone.now()) == 0
    OperationStep.objects.update(generation=1)
    assert steps_settle(now=timezone.now(), agents=["agent-2"]) == 0
    assert steps_settle(now=timezone.now(), agents=["agent-1"]) == 1
    assert state(operation) == ("done", [])
    assert steps_sweep(now=timezone.now()) == 0


def test_what_is_not_believed_settles_nothing(acme: Organisation) -> None:
    make_agent()
    planned(1)
    told("agent-1", applied(1, OTHER))
    operation = purge(actor=SYSTEM, organisation=acme)
    OperationStep.objects.update(generation=1)
    assert steps_sweep(now=timezone.now()) == 0
    assert state(operation) == ("running", ["agent-1"])


# Ends without a proof


def test_of_a_revoked_agent_nothing_is_awaited(acme: Organisation) -> None:
    one = make_agent("agent-1")
    make_agent("agent-2")
    operation = purge(actor=SYSTEM, organisation=acme)
    agent_revoke(actor=SYSTEM, agent=one)
    assert state(operation) == ("running", ["agent-2"])
    (note,) = [each["note"] for each in operation.receipts]
    assert note == "revoked"
    planned(1)
    told("agent-2", applied(1))
    assert state(operation) == ("done", [])


def test_a_step_begun_while_its_agent_was_revoked_is_dropped_by_the_sweep(acme: Organisation) -> None:
    one = make_agent()
    operation = purge(actor=SYSTEM, organisation=acme)
    Agent.objects.filter(pk=one.pk).update(revoked_at=timezone.now())
    assert steps_sweep(now=timezone.now()) == 1
    assert state(operation) == ("done", [])


def test_a_command_without_a_receipt_fails_at_its_deadline_and_a_late_receipt_changes_nothing() -> None:
    operation = agent_drain(actor=SYSTEM, agent=make_agent())
    (step,) = OperationStep.objects.all()
    assert step.deadline is not None
    assert steps_sweep(now=step.deadline) == 0
    assert steps_sweep(now=step.deadline + timedelta(seconds=1)) == 1
    assert state(operation) == ("failed", [])
    assert [one["note"] for one in operation.receipts] == ["no receipt came before the deadline"]
    told("agent-1", receipt(operation.pk))
    assert state(operation) == ("failed", [])
    assert len(operation.receipts) == 1


def test_a_purge_waits_for_an_agent_that_is_away_for_as_long_as_it_takes(acme: Organisation) -> None:
    make_agent()
    operation = purge(actor=SYSTEM, organisation=acme)
    assert steps_sweep(now=timezone.now() + timedelta(days=30)) == 0
    assert state(operation) == ("running", ["agent-1"])


def test_people_see_who_proved_what_and_why_somebody_did_not(acme: Organisation, operator: Api) -> None:
    one = make_agent("agent-1")
    make_agent("agent-2")
    operation = purge(actor=SYSTEM, organisation=acme)
    agent_revoke(actor=SYSTEM, agent=one)
    planned(1)
    told("agent-2", purged(of(acme, "chat").pk, 4), applied(1))
    shown = said(operator.get(f"/operations/{operation.pk}"))
    assert (shown["state"], shown["awaited_agents"]) == ("done", [])
    found = [(each["agent"], each["scope"], each["blocks"], each["bytes"], each["note"]) for each in shown["receipts"]]
    assert found == [("agent-1", "acme", 0, 0, "revoked"), ("agent-2", "acme", 4, 4000, None)]


# Many at once


@pytest.mark.parametrize("count", [3, 60])
def test_batches_of_many_agents_cost_no_more_queries_than_few(
    acme: Organisation, count: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    names = [f"agent-{number}" for number in range(count)]
    for name in names:
        make_agent(name)
    operation = purge(actor=SYSTEM, organisation=acme)
    drains = [agent_drain(actor=SYSTEM, agent=Agent.objects.get(pk=name)) for name in names]
    planned(1)
    chat = of(acme, "chat").pk
    batches = {
        name: Batch(0.0, "s", 1, [refused("older"), purged(chat, 2), applied(1), receipt(drain.pk)], None)
        for name, drain in zip(names, drains, strict=True)
    }
    with django_assert_max_num_queries(20):
        batches_store(batches, now=timezone.now())
    assert state(operation) == ("done", [])
    assert {blocks for _, _, blocks, _ in receipts(operation)} == {2}
    assert {state(one)[0] for one in drains} == {"done"}
    assert RefusedCommands.objects.count() == count


def test_heartbeats_of_many_agents_are_one_statement(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    names = [f"agent-{number}" for number in range(30)]
    for name in names:
        make_agent(name)
    now = timezone.now()
    beats = {name: Beat(name, heartbeat_of(5), now, 1.5) for name in names[:20]}
    with django_assert_num_queries(1):
        written = heartbeats_write(beats, names)
    assert (sorted(one.id for one in written.agents), written.fleet_size) == (sorted(names), 30)
    assert Agent.objects.filter(heartbeat_sequence=5, last_seen_at=now, clock_skew_seconds=1.5).count() == 20


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("deed", [agent_drain, agent_revoke])
def test_a_purge_waits_for_nobody_who_changes_an_agent(deed: Callable[..., Any]) -> None:
    """Or both could wait for each other: its steps refer to the agent, and that is looked at as it is committed."""
    acme, agent = make_organisation("acme"), make_agent()
    outcomes = while_held(lambda: deed(actor=SYSTEM, agent=agent), lambda: purge(actor=SYSTEM, organisation=acme))
    assert failures(outcomes) == []
    if deed is agent_revoke:
        steps_sweep(now=timezone.now())
        assert state(outcomes[1]) == ("done", [])


@pytest.mark.django_db(transaction=True)
def test_agents_that_answer_at_once_in_several_processes_lose_no_receipt() -> None:
    """In any order and groups, some twice: nobody waits in a circle, and every receipt is there once."""
    acme = make_organisation("acme")
    names = [f"agent-{number}" for number in range(12)]
    for name in names:
        make_agent(name)
    operations = [purge(actor=SYSTEM, organisation=acme) for _ in range(3)]
    planned(1)
    default = of(acme, "default").pk
    dice = random.Random(7)

    def answering(chosen: list[str]) -> Any:
        batch = Batch(0.0, "s", 1, [purged(default, 1), applied(1)], None)
        return lambda: batches_store(dict.fromkeys(chosen, batch), now=timezone.now())

    outcomes = at_once(
        *(answering(dice.sample(names, 8)) for _ in range(6)),
        *(lambda: steps_sweep(now=timezone.now()) for _ in range(2)),
        answering(names),
    )
    assert failures(outcomes) == []
    for operation in operations:
        assert state(operation) == ("done", [])
        assert sorted(receipts(operation)) == [(name, "acme", 1, 1000) for name in sorted(names)]
