"""The agents' door on the real PostgreSQL: who is let in, what is written down, and what is answered."""

import asyncio
import gzip
import json
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg.sql
import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.utils import timezone
from prometheus_client import REGISTRY

from controlplane.fleet.agents import agent_revoke
from controlplane.fleet.cadence import cadence_seconds
from controlplane.fleet.intake import MOST_AHEAD
from controlplane.fleet.models import Agent, AgentGeneration, OperationStep, RefusedCommands
from controlplane.fleet.operations import operation_of_agents
from controlplane.fleet.requests import SMALL_BYTES
from engine_agent.contracts.protocol import queue_name, snapshot_decode
from engine_agent.contracts.wire import MOST_BATCH_BYTES, Report
from tenants.actor import SYSTEM
from tenants.crypto import secret_hash
from tenants.models import Namespace, Operation
from tests.database.factories import about_agent, make_group, make_join_token, make_namespace, make_pin
from tests.fleet.doors import (
    HASH,
    Answered,
    Sender,
    a_tick,
    applied,
    door,
    heartbeat_of,
    purged,
    receipt,
    refused,
    rejected,
    sender,
    senders,
)
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db(transaction=True)
OTHER = "b" * 64


@pytest.fixture(autouse=True)
async def _connections_end(transactional_db: None) -> AsyncIterator[None]:
    """Those that tests open in asgiref's thread."""
    yield
    await sync_to_async(lambda: connection.close())()


async def agent_of(one: Sender) -> Agent:
    return await Agent.objects.select_related("group").aget(pk=one.agent)


@sync_to_async
def hold(one: Sender, generation: int, hash_: str = HASH) -> None:
    """It is to hold this."""
    AgentGeneration.objects.create(agent_id=one.agent, number=generation, hash=hash_, at=timezone.now())
    Agent.objects.filter(pk=one.agent).update(desired_generation=generation, desired_hash=hash_)


@sync_to_async
def operated(*agents: str, deed: Any = "integrity") -> Operation:
    return operation_of_agents(actor=SYSTEM, deed=deed, agents=agents, scope="fleet", now=timezone.now(), seconds=60)


# Enrolling


@sync_to_async
def joining(**how: Any) -> str:
    return make_join_token(**how)[1].secret


def asking(secret: str, **changes: Any) -> dict[str, Any]:
    return {"token": secret, "kind": "engine", "name": "agent-1", "about": about_agent(), **changes}


async def test_an_agent_enrols_and_is_known_by_its_token_from_then_on() -> None:
    answered = await door("enrol", body=asking(await joining()))
    assert answered.status == 201
    told = answered.told
    assert (told["agent"], told["kind"], told["group"]) == ("agent-1", "engine", "default")
    assert told["broker"]["queue"] == queue_name("agent-1")
    assert (await Sender("agent-1", told["token"]).beat()).status == 200


async def test_a_gateway_may_come_without_a_name() -> None:
    body = asking(await joining(), kind="gateway", about=about_agent(backend="gateway"))
    del body["name"]
    answered = await door("enrol", body=body)
    assert (answered.status, answered.told["kind"]) == (201, "gateway")


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"token": "ljt_wrong"}, 401, "unknown_token"),
        ({"kind": "toaster"}, 400, "malformed"),
        ({"kind": "gateway"}, 403, "wrong_kind"),
        ({"about": {"backend": "steam"}}, 400, "malformed"),
        ({"about": []}, 400, "malformed"),
        ({"name": "Not A Name"}, 400, "malformed"),
        ({"more": 1}, 400, "malformed"),
    ],
)
async def test_who_may_not_enrol_is_told_why(changes: dict[str, Any], status: int, code: str) -> None:
    answered = await door("enrol", body=asking(await joining(kind="engine"), **changes))
    assert (answered.status, answered.code) == (status, code)
    assert not await Agent.objects.aexists()


async def test_a_name_is_taken_once() -> None:
    await senders("agent-1")
    answered = await door("enrol", body=asking(await joining()))
    assert (answered.status, answered.code) == (409, "name_taken")


async def test_a_new_token_ends_the_old_one_when_it_is_first_used() -> None:
    (one,) = await senders("agent-1")
    await one.beat()
    answered = await door("credentials", token=one.token, body={"rotate": True})
    assert (answered.status, answered.told["agent"]) == (200, "agent-1")
    new = Sender("agent-1", answered.told["token"])
    assert (await one.beat()).status == 200
    assert (await new.beat()).status == 200
    refusal = await one.beat()
    assert (refusal.status, refusal.code) == (401, "unknown_token")
    assert (await new.beat()).status == 200


async def test_credentials_without_a_new_token_name_none() -> None:
    (one,) = await senders("agent-1")
    answered = await door("credentials", token=one.token, body={"rotate": False})
    assert (answered.status, answered.told["token"], answered.told["key_number"]) == (200, None, 1)


# Who is let in


async def test_without_a_right_token_nothing_is_answered() -> None:
    asked = (("reports", "POST"), ("snapshot", "GET"), ("pins/x", "GET"), ("credentials", "POST"))
    for path, method in asked:
        for token in (None, "", "lat_wrong", "ljt_wrong", "x" * 5000):
            answered = await door(path, method=method, token=token, body={"rotate": False})
            assert (answered.status, answered.code) == (401, "unknown_token")
            assert answered.headers["www-authenticate"] == "Bearer"


async def test_a_token_of_another_kind_or_that_was_never_given_out_is_unknown() -> None:
    from tenants.crypto import secret_new

    for secret in (await joining(), secret_new("lat").secret):
        answered = await door("reports", token=secret, body={})
        assert (answered.status, answered.code) == (401, "unknown_token")


async def test_a_revoked_agent_is_shut_out_and_told_so() -> None:
    (one,) = await senders("agent-1")
    assert (await one.beat()).status == 200
    await sync_to_async(agent_revoke)(actor=SYSTEM, agent=await agent_of(one))
    refusal = await one.report(applied(1))  # seen where it is written down, whatever the door still believes
    assert (refusal.status, refusal.code) == (403, "revoked")
    await a_tick()
    refusal = await one.beat()
    assert (refusal.status, refusal.code) == (403, "revoked")


async def test_what_is_refused_is_one_log_line_and_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="luminet.fleet"):
        answered = await door("reports", token="lat_wrong", body={})
    assert [record.getMessage() for record in caplog.records] == ["agent refused"]
    assert vars(caplog.records[0])["code"] == "unknown_token"
    assert caplog.records[0].exc_info is None
    assert "lat_wrong" not in caplog.text
    assert set(answered.told["error"]) == {"code", "message"}


async def test_paths_and_methods_that_are_not_there_are_said_not_to_be() -> None:
    for path in ("", "nonsense", "reports/more", "pins", "pins/", "\0"):
        answered = await door(path)
        assert (answered.status, answered.code) == (404, "not_found")
    for path, method in (("reports", "GET"), ("snapshot", "POST"), ("enrol", "DELETE")):
        answered = await door(path, method=method)
        assert (answered.status, answered.code) == (405, "method")
    assert (await door("snapshot", method="HEAD")).status == 405


# Heartbeats


async def test_a_heartbeat_is_answered_at_once_and_written_within_a_second_or_two() -> None:
    (one,) = await senders("agent-1")
    before = timezone.now()
    answered = await one.beat(spooled=3)
    assert answered.told["acknowledged"] == 0
    assert answered.told["desired"] is None
    assert answered.told["cadence_seconds"] == cadence_seconds(1)
    assert answered.told["watch"] == []
    assert abs(answered.told["now"] - time.time()) < 60
    await a_tick()
    agent = await agent_of(one)
    assert agent.heartbeat["spooled"] == 3
    assert (agent.heartbeat_boot, agent.heartbeat_sequence) == ("boot-1", 1)
    assert agent.last_seen_at is not None
    assert agent.last_seen_at >= before


async def test_only_the_newest_heartbeat_counts() -> None:
    (one,) = await senders("agent-1")
    for sequence, boot in ((1, "old"), (5, "b"), (4, "b"), (5, "b")):
        await one.report(heartbeat=heartbeat_of(sequence, boot=boot, spooled=sequence))
    await a_tick()
    await one.report(heartbeat=heartbeat_of(3, boot="b", spooled=3))
    await a_tick()
    agent = await agent_of(one)
    assert (agent.heartbeat_boot, agent.heartbeat_sequence, agent.heartbeat["spooled"]) == ("b", 5, 5)


async def test_an_agents_clock_is_seen_to_be_off() -> None:
    (one,) = await senders("agent-1")
    await one.send([], first=1, heartbeat=heartbeat_of(1), sent_at=time.time() + 600)
    await a_tick()
    assert (await agent_of(one)).clock_skew_seconds == pytest.approx(600, abs=60)


async def test_answers_say_what_is_desired_a_moment_after_it_is_decided() -> None:
    (one,) = await senders("agent-1")
    await one.beat()
    await hold(one, 7)
    await a_tick()
    assert (await one.beat()).told["desired"] == {"hash": HASH, "generation": 7}


async def test_a_heartbeat_of_an_agent_whose_row_is_held_waits_and_holds_up_nobody() -> None:
    held, free = await senders("agent-1", "agent-2")
    begun, over = asyncio.Event(), asyncio.Event()

    @sync_to_async(thread_sensitive=False)
    def holding(loop: asyncio.AbstractEventLoop) -> None:
        from django.db import transaction

        with transaction.atomic():
            Agent.objects.select_for_update().get(pk="agent-1")
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(over.wait(), loop).result(30)
        connection.close()

    task = asyncio.create_task(holding(asyncio.get_running_loop()))
    await begun.wait()
    await asyncio.gather(held.beat(), free.beat())
    await a_tick()
    assert (await agent_of(free)).heartbeat_sequence == 1
    assert (await agent_of(held)).heartbeat_sequence == 0
    over.set()
    await task
    await a_tick()
    assert (await agent_of(held)).heartbeat_sequence == 1


# Reports


async def test_an_acknowledgement_is_in_the_database_when_it_is_answered() -> None:
    (one,) = await senders("agent-1")
    await hold(one, 3)
    answered = await one.report(applied(3))
    assert (answered.status, answered.told["acknowledged"]) == (200, 1)
    assert answered.told["desired"] == {"hash": HASH, "generation": 3}
    agent = await agent_of(one)
    assert (agent.applied_hash, agent.applied_generation, agent.spool_number) == (HASH, 3, 1)
    assert agent.applied_at is not None


async def test_duplicates_are_acknowledged_again_and_counted_once() -> None:
    (one,) = await senders("agent-1")
    for _ in range(3):
        answered = await one.send([refused("forged"), refused("older", 2)], first=1)
        assert answered.told["acknowledged"] == 2
    answered = await one.send([refused("older", 2), refused("forged", 5)], first=2)
    assert answered.told["acknowledged"] == 3
    counts = {found.reason: found.count async for found in RefusedCommands.objects.all()}
    assert counts == {"forged": 6, "older": 2}


async def test_the_same_batch_many_times_at_once_counts_once() -> None:
    (one,) = await senders("agent-1")
    answers = await asyncio.gather(*(one.send([refused("forged", 2)], first=1) for _ in range(10)))
    assert {answered.told["acknowledged"] for answered in answers} == {1}
    assert (await RefusedCommands.objects.aget()).count == 2


async def test_a_gap_is_counted_as_lost() -> None:
    (one,) = await senders("agent-1")
    await one.send([refused("forged")], first=1)
    answered = await one.send([refused("forged")], first=5)
    assert answered.told["acknowledged"] == 5
    agent = await agent_of(one)
    assert (agent.lost_reports, agent.spool_number) == (3, 5)


async def test_a_new_spool_starts_at_one_and_an_old_batch_that_comes_late_counts_no_more() -> None:
    (one,) = await senders("agent-1")
    await one.send([refused("forged")] * 3, first=1)
    one.spool = "spool-2"
    assert (await one.send([refused("forged")], first=1)).told["acknowledged"] == 1
    one.spool = "spool-1"
    assert (await one.send([refused("forged")] * 2, first=2)).told["acknowledged"] == 3
    agent = await agent_of(one)
    assert (agent.spool, agent.spool_number, agent.past_spools) == ("spool-2", 1, [["spool-1", 3]])
    assert (await RefusedCommands.objects.aget()).count == 4
    assert agent.lost_reports == 0


async def test_what_an_agent_holds_that_it_was_never_to_hold_is_written_down_and_ends_nothing() -> None:
    (one,) = await senders("agent-1")
    await hold(one, 3)
    operation = await planned_purge(one, generation=3)
    assert (await one.report(applied(3, OTHER))).status == 200
    agent = await agent_of(one)
    assert (agent.applied_hash, agent.applied_generation) == (OTHER, 3)
    assert (await Operation.objects.aget(pk=operation)).state == "running"


async def test_a_rejection_is_a_state_until_it_is_over() -> None:
    (one,) = await senders("agent-1")
    await hold(one, 3)
    await one.report(rejected(3, "no room for \x00 it"))
    agent = await agent_of(one)
    assert (agent.rejected_hash, agent.rejected_reason) == (HASH, "no room for \ufffd it")
    assert agent.rejected_at is not None
    await one.report(applied(3))
    agent = await agent_of(one)
    assert (agent.rejected_hash, agent.rejected_reason, agent.rejected_at) == ("", "", None)


async def test_what_an_agent_says_of_itself_replaces_what_it_said() -> None:
    (one,) = await senders("agent-1")
    await one.report(Report("about", about_agent(kv_dtypes=["bf16"])))
    assert (await agent_of(one)).about["kv_dtypes"] == ["bf16"]
    answered = await one.report(Report("about", {"backend": "steam"}))
    assert (answered.status, answered.told["acknowledged"]) == (200, 2)
    assert (await agent_of(one)).about["kv_dtypes"] == ["bf16"]


async def test_a_thing_that_means_nothing_is_acknowledged_or_the_spool_would_never_end() -> None:
    (one,) = await senders("agent-1")
    strange = [purged(999_999, 3), receipt("no-such-operation"), applied(2**62), receipt("x", why="\ud800\x00")]
    assert (await one.report(*strange)).told["acknowledged"] == 4
    agent = await agent_of(one)
    assert (agent.applied_generation, agent.spool_number) == (0, 4)


async def test_a_hundred_acknowledgements_at_once_take_few_commits() -> None:
    several = await senders(*(f"agent-{number}" for number in range(100)))
    for one in several:
        await hold(one, 1)
    await asyncio.gather(*(one.beat() for one in several))  # so that all are known
    before = commits()
    answers = await asyncio.gather(*(one.report(applied(1)) for one in several))
    assert {(answered.status, answered.told["acknowledged"]) for answered in answers} == {(200, 1)}
    assert await Agent.objects.filter(applied_generation=1, applied_hash=HASH).acount() == 100
    assert 1 <= commits() - before < 20


def commits() -> float:
    return REGISTRY.get_sample_value("luminet_agent_commit_seconds_count") or 0.0


# One agent is not another


async def test_no_agent_can_speak_for_another() -> None:
    one, other = await senders("agent-1", "agent-2")
    await hold(other, 3)
    purge = await planned_purge(other, generation=3)
    operation = await operated("agent-2")
    answered = await one.report(applied(3), receipt(operation.pk), refused("forged"))
    assert answered.status == 200
    assert (await agent_of(other)).applied_generation == 0
    assert (await agent_of(other)).spool_number == 0
    assert {step.state async for step in OperationStep.objects.all()} == {"waiting"}
    assert {found.state async for found in Operation.objects.filter(pk__in=[purge, operation.pk])} == {"running"}
    assert (await RefusedCommands.objects.aget()).agent_id == "agent-1"


# Bad input


def malformed_bodies() -> dict[str, bytes]:
    batch = {"version": 1, "sent_at": 0, "spool": "s", "first": 1, "reports": [], "heartbeat": None}
    told = {
        "nothing": b"",
        "nonsense": b"{",
        "no utf-8": b'"\xff"',
        "deep": b"[" * 200_000,
        "a list": b"[]",
        "another version": batch | {"version": 2},
        "more": batch | {"agent": "agent-2"},
        "no number": batch | {"first": 0},
        "a number that is none": batch | {"first": True},
        "beyond numbers": batch | {"first": 2**63 - 1, "reports": [{"kind": "about", "told": {}}]},
        "nan": json.dumps(batch | {"sent_at": float("nan")}).encode(),
        "a kind nobody knows": batch | {"reports": [{"kind": "sneeze", "told": {}}]},
        "a report without its fields": batch | {"reports": [{"kind": "applied", "told": {}}]},
        "too many": batch | {"reports": [{"kind": "about", "told": {}}] * 501},
        "no heartbeat": batch | {"heartbeat": []},
        "a heartbeat that is far ahead": batch
        | {"heartbeat": heartbeat_of(1, applied={"hash": HASH, "generation": MOST_AHEAD + 9})},
        "a heartbeat that is large": batch | {"heartbeat": heartbeat_of(1, load={"x" * SMALL_BYTES: 1})},
    }
    return {name: body if isinstance(body, bytes) else json.dumps(body).encode() for name, body in told.items()}


async def test_a_malformed_batch_is_refused_and_changes_nothing() -> None:
    (one,) = await senders("agent-1")
    for name, body in malformed_bodies().items():
        answered = await door("reports", token=one.token, body=body)
        assert (answered.status, answered.code) == (400, "malformed"), name
    await a_tick()
    agent = await agent_of(one)
    assert (agent.spool, agent.heartbeat, agent.last_seen_at) == ("", {}, None)


async def test_a_batch_that_is_too_large_is_refused() -> None:
    (one,) = await senders("agent-1")
    answered = await door("reports", token=one.token, body=b" " * (MOST_BATCH_BYTES + 1))
    assert (answered.status, answered.code) == (413, "too_large")
    announced = {"content_length": str(MOST_BATCH_BYTES + 1)}
    answered = await door("reports", token=one.token, **announced)
    assert (answered.status, answered.code) == (413, "too_large")


async def test_strange_characters_are_replaced_and_never_stop_a_heartbeat() -> None:
    (one,) = await senders("agent-1")
    engine = {"boot": "\x00", "state": "failed", "why": "half a \ud800 pair", "hash": None}
    assert (await one.beat(engine=engine, load={"\x00\udfff": 1})).status == 200
    await a_tick()
    agent = await agent_of(one)
    assert agent.heartbeat["engine"]["why"] == "half a \ufffd pair"
    assert agent.heartbeat["load"] == {"\ufffd\ufffd": 1}


# Snapshots and pins


async def snapshot(one: Sender, have: str = "", **headers: str) -> Answered:
    return await door("snapshot", method="GET", token=one.token, query=f"have={have}", **headers)


async def test_an_agent_fetches_what_it_is_to_hold_once() -> None:
    await sync_to_async(make_organisation)("acme", *(f"chat-{number}" for number in range(20)))
    (one,) = await senders("agent-1")
    answered = await snapshot(one)
    assert answered.status == 200
    found = snapshot_decode(answered.body)
    agent = await agent_of(one)
    told = (answered.headers["x-luminet-snapshot"], answered.headers["x-luminet-generation"])
    assert told == (found.hash, str(agent.desired_generation)) == (agent.desired_hash, "1")
    packed = await snapshot(one, accept_encoding="gzip, br")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == answered.body
    again = await snapshot(one, have=found.hash)
    assert (again.status, again.body, again.headers["x-luminet-snapshot"]) == (304, b"", found.hash)


async def test_each_agent_gets_its_own_snapshot() -> None:
    acme = await sync_to_async(make_organisation)("acme")
    group = await sync_to_async(make_group)("gpu")
    await sync_to_async(make_namespace)(acme, "far", group=group)
    here, there = await sync_to_async(sender)("agent-1"), await sync_to_async(sender)("agent-2", group=group)
    slugs = []
    for one in (here, there):
        found = snapshot_decode((await snapshot(one)).body)
        slugs.append({entry["slug"] for key, entry in found.entries.items() if key.startswith("ns/")})
    assert slugs == [{"default"}, {"far"}]


async def test_an_engine_fetches_the_pins_of_its_group_and_nobody_else_does() -> None:
    acme = await sync_to_async(make_organisation)("acme")
    group = await sync_to_async(make_group)("gpu")
    far = await sync_to_async(make_namespace)(acme, "far", group=group)
    near = await Namespace.objects.select_related("organisation").aget(slug="default")
    mine, foreign = [await sync_to_async(make_pin)(one) for one in (near, far)]
    engine, gateway = await sync_to_async(sender)("agent-1"), await sync_to_async(sender)("g-1", kind="gateway")
    answered = await pin(engine, mine.pk)
    assert answered.told == {"kind": "prompt", "content": "You answer from the handbook."}
    for who, what in ((engine, foreign.pk), (engine, "x"), (engine, "x/y"), (gateway, mine.pk)):
        refusal = await pin(who, what)
        assert (refusal.status, refusal.code) == (404, "not_found")


async def test_a_pin_that_is_over_is_not_told() -> None:
    await sync_to_async(make_organisation)("acme")
    near = await Namespace.objects.select_related("organisation").aget(slug="default")
    mine = await sync_to_async(make_pin)(near)
    (one,) = await senders("agent-1")
    mine.expires_at = timezone.now() - timedelta(seconds=1)
    await mine.asave()
    assert (await pin(one, mine.pk)).status == 404


async def pin(one: Sender, pin_id: Any) -> Answered:
    return await door(f"pins/{pin_id}", method="GET", token=one.token)


# When the database fails


async def test_a_batch_whose_transaction_fails_is_not_acknowledged_and_counts_once_later() -> None:
    (one,) = await senders("agent-1")
    await one.beat()
    await broken_at("fleet_refusedcommands")
    answered = await one.send([applied(3, OTHER), refused("forged")], first=1)
    assert answered.status == 500
    assert answered.code == "internal"
    assert "RAISE" not in answered.body.decode()
    assert (await agent_of(one)).spool_number == 0
    await mended("fleet_refusedcommands")
    assert (await one.send([applied(3, OTHER), refused("forged")], first=1)).told["acknowledged"] == 2
    assert (await RefusedCommands.objects.aget()).count == 1


async def test_one_agents_batch_that_cannot_be_stored_holds_up_no_others() -> None:
    good, bad = await senders("agent-1", "agent-2")
    await asyncio.gather(good.beat(), bad.beat())
    await broken_at("fleet_refusedcommands")
    answers = await asyncio.gather(good.report(applied(1, OTHER)), bad.report(refused("forged")))
    await mended("fleet_refusedcommands")
    assert [answered.status for answered in answers] == [200, 500]
    assert (await agent_of(good)).spool_number == 1


@sync_to_async
def broken_at(table: str) -> None:
    """The database refuses whatever is written there."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'data_exception'; END $$"
        )
        cursor.execute(f"CREATE TRIGGER refused BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION refuse()")


@sync_to_async
def mended(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER refused ON {table}")


async def test_a_connection_that_drops_in_the_middle_is_a_503_and_the_retry_counts_once() -> None:
    (one,) = await senders("agent-1")
    await one.beat()
    begun, task = await with_the_row_locked(one)
    reporting = asyncio.create_task(one.send([refused("forged"), applied(3, OTHER)], first=1))
    assert await killed_waiter() == 1
    answered = await reporting
    assert (answered.status, answered.code, answered.headers["retry-after"]) == (503, "unavailable", "1")
    begun.set()
    await task
    assert (await agent_of(one)).spool_number == 0
    assert (await one.send([refused("forged"), applied(3, OTHER)], first=1)).told["acknowledged"] == 2
    assert (await RefusedCommands.objects.aget()).count == 1


async def test_while_the_database_is_away_heartbeats_wait_and_reports_are_not_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, stranger = await senders("agent-1", "agent-2")
    await one.beat()
    with caplog.at_level(logging.WARNING, logger="luminet.fleet"):
        await open_to_connections(False)
        try:
            assert (await one.beat()).status == 200
            for refusal in (await one.send([refused("forged")], first=1), await stranger.beat()):
                assert (refusal.status, refusal.code) == (503, "unavailable")
            await a_tick(count=3)
        finally:
            await open_to_connections(True)
    told = [record.getMessage() for record in caplog.records]
    assert sorted(told) == ["agent refused", "agent refused", "heartbeats cannot be written"]
    await a_tick()
    assert (await agent_of(one)).heartbeat_sequence == 2
    assert (await one.send([refused("forged")], first=1)).told["acknowledged"] == 1


@sync_to_async
def open_to_connections(is_open: bool) -> None:
    """Those that there are stay; new ones are refused."""
    settings = connection.settings_dict
    where = {name: settings[name.upper()] for name in ("user", "password", "host", "port")}
    with psycopg.connect(**where, dbname="postgres", autocommit=True) as server:
        name = psycopg.sql.Identifier(settings["NAME"])
        server.execute(psycopg.sql.SQL(f"ALTER DATABASE {{}} ALLOW_CONNECTIONS {is_open}").format(name))


async def with_the_row_locked(one: Sender) -> tuple[asyncio.Event, "asyncio.Task[None]"]:
    """So that whoever writes it down waits in the middle of a transaction."""
    loop, held, over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    @sync_to_async(thread_sensitive=False)
    def holding() -> None:
        from django.db import transaction

        with transaction.atomic():
            Agent.objects.select_for_update().get(pk=one.agent)
            loop.call_soon_threadsafe(held.set)
            asyncio.run_coroutine_threadsafe(over.wait(), loop).result(30)
        connection.close()

    task = asyncio.create_task(holding())
    await held.wait()
    return over, task


@sync_to_async(thread_sensitive=False)
def killed_waiter() -> int:
    """The server ends the connection of who waits for a lock, once there is one."""
    statement = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    try:
        for _ in range(200):
            with connection.cursor() as cursor:
                cursor.execute(statement)
                if found := int(cursor.fetchone()[0]):
                    return found
            time.sleep(0.01)
        return 0
    finally:
        connection.close()


# Operations


@sync_to_async
def planned_purge(*several: Sender, generation: int, scope: str = "acme") -> Any:
    """Of the whole fleet, as the planner leaves it: each agent is to prove it by holding that generation."""
    operation = Operation.objects.create(
        kind="purge",
        scope=scope,
        state="running",
        awaited_agents=sorted(one.agent for one in several),
        created_by="x",
    )
    for one in several:
        OperationStep.objects.create(operation=operation, agent_id=one.agent, deed="state", generation=generation)
    return operation.pk


async def test_a_receipt_is_written_once_however_often_it_is_told() -> None:
    (one,) = await senders("agent-1")
    operation = await operated("agent-1")
    for first in (1, 1, 2):
        await one.send([receipt(operation.pk, problems=[])], first=first)
    found = await Operation.objects.aget(pk=operation.pk)
    assert found.state == "done"
    assert [each["result"] for each in found.receipts] == [{"problems": []}]


async def test_an_operation_that_one_agent_could_not_do_has_failed_and_says_where_and_why() -> None:
    one, other = await senders("agent-1", "agent-2")
    operation = await operated("agent-1", "agent-2")
    await one.report(receipt(operation.pk, ok=False, why="still answering"))
    assert (await Operation.objects.aget(pk=operation.pk)).state == "running"
    await other.report(receipt(operation.pk))
    found = await Operation.objects.aget(pk=operation.pk)
    assert found.state == "failed"
    assert [(each["agent"], each.get("note")) for each in found.receipts] == [
        ("agent-1", "still answering"),
        ("agent-2", None),
    ]


def test_hashes_of_tokens_are_what_is_stored(db: None) -> None:
    one = sender()
    assert bytes(Agent.objects.get(pk=one.agent).token_hash) == secret_hash(one.token)
