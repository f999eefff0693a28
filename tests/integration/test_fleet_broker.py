"""Agents' logins on the real Redis: enough for a real Celery worker, and nothing beyond that."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import redis
from django.db import transaction
from django.utils import timezone
from pytest_django.fixtures import DjangoCaptureOnCommitCallbacks, Settings

from controlplane.fleet import broker, broker_rights
from controlplane.fleet.agents import agent_revoke
from controlplane.fleet.enrolment import Credentials, enrol
from controlplane.fleet.errors import BrokerAway
from controlplane.fleet.models import Agent
from controlplane.settings.env import Environment
from tenants.actor import SYSTEM
from tests.database.factories import about_agent, enrol_agent, make_agent, make_join_token
from tests.fleet.agent_workers import command_send, working
from tests.support.ports import free_port

pytestmark = pytest.mark.django_db
SECONDS = 60
NOBODY = "invalid username-password pair"
REFUSED = "no permissions"


@pytest.fixture
def central(redis_server: str) -> Iterator[redis.Redis]:
    """The control plane's own login; no agent has one before a test makes it."""
    with redis.Redis.from_url(redis_server, decode_responses=True) as client:
        logins_forget(client)
        yield client
        logins_forget(client)


def logins_forget(client: redis.Redis) -> None:
    """What Redis started empty has: no login but ours, and no script."""
    for name in map(str, client.acl_users()):
        if name != "default":
            client.acl_deluser(name)
    client.script_flush()


def do(client: redis.Redis, *words: str) -> Any:
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


@contextmanager
def signed_in(credentials: Credentials) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(credentials.broker["url"], socket_timeout=SECONDS) as client:
        yield client


def can_sign_in(credentials: Credentials) -> bool:
    with signed_in(credentials) as client, suppress(redis.AuthenticationError):
        return bool(client.ping())
    return False


TAKES_AND_DIES = """
import os, sys
from kombu import Connection
url, prefix, queue = sys.argv[1:]
channel = Connection(url, transport_options={"global_keyprefix": prefix}).channel()
os._exit(0 if channel.basic_get(queue) else 1)
"""


def test_a_command_taken_by_a_worker_that_died_comes_to_the_next_one(central: redis.Redis) -> None:
    """Giving it back is what most of the login's rights are for: a lock, a transaction and a script among them."""
    credentials = enrol_agent("agent-1")
    command_send("agent-1", "taken")
    place = [credentials.broker[name] for name in ("url", "prefix", "queue")]
    subprocess.run([sys.executable, "-c", TAKES_AND_DIES, *place], check=True, timeout=SECONDS)
    assert central.hlen("agent.agent-1:unacked") == 1
    assert central.llen("agent.agent-1:agent.agent-1") == 0
    with working(credentials) as heard:
        assert heard.get(timeout=SECONDS) == "taken"


DEEDS: dict[str, Callable[[redis.Redis, str], Any]] = {
    "read a queue": lambda client, key: client.rpop(key),
    "wait at a queue": lambda client, key: client.brpop([key], timeout=1),
    "write into a queue": lambda client, key: client.lpush(key, "forged"),
    "measure a queue": lambda client, key: client.llen(key),
    "delete a queue": lambda client, key: client.delete(key),
    "overwrite a queue": lambda client, key: client.set(key, "x"),
    "watch a queue": lambda client, key: do(client, "WATCH", key),
    "reach a queue by a script": lambda client, key: client.evalsha(
        client.register_script(broker_rights.SCRIPTS[0]).sha, 1, key, "x"
    ),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_an_agent_cannot_touch_the_keys_of_another(central: redis.Redis, deed: str) -> None:
    mine, _ = enrol_agent("agent-1"), enrol_agent("agent-10")
    command_send("agent-10", "not for agent-1")
    theirs = ("agent.agent-10:agent.agent-10", "agent.agent-10:unacked", "control", "agent.agent-1")
    with signed_in(mine) as client:
        for key in theirs:
            with pytest.raises(redis.ResponseError, match=f"(?i){REFUSED}"):
                DEEDS[deed](client, key)
        DEEDS[deed](client, "agent.agent-1:something")  # its own it can
    assert central.llen("agent.agent-10:agent.agent-10") == 1


OTHERS = {
    "list keys": ("KEYS", "*"),
    "walk over the keys": ("SCAN", "0"),
    "pick a key": ("RANDOMKEY",),
    "watch what others do": ("MONITOR",),
    "see who is connected": ("CLIENT", "LIST"),
    "throw others out": ("CLIENT", "KILL", "TYPE", "normal"),
    "listen to others": ("SUBSCRIBE", "luminet:live"),
    "listen to everything": ("PSUBSCRIBE", "*"),
    "tell others": ("PUBLISH", "luminet:live", "x"),
    "make a login": ("ACL", "SETUSER", "mallory", "on"),
    "see the logins": ("ACL", "LIST"),
    "change the server": ("CONFIG", "SET", "maxmemory", "1"),
    "empty the database": ("FLUSHDB",),
    "empty the server": ("FLUSHALL",),
    "stop the server": ("SHUTDOWN",),
    "ask about the server": ("INFO",),
    "run a script of its own": ("EVAL", "while true do end", "0"),
    "load a script of its own": ("SCRIPT", "LOAD", "while true do end"),
    "run a function": ("FUNCTION", "LIST"),
    "take another's queue away": ("RENAME", "agent.agent-1:a", "agent.agent-1:b"),
}


@pytest.mark.parametrize("deed", OTHERS)
def test_an_agent_cannot(central: redis.Redis, deed: str) -> None:
    with signed_in(enrol_agent("agent-1")) as client:
        with pytest.raises(redis.ResponseError, match=f"(?i){REFUSED}|unknown command"):
            do(client, *OTHERS[deed])
        assert client.ping()


def test_no_name_of_an_agent_is_the_beginning_of_anothers_keys(central: redis.Redis) -> None:
    """`agent-1` has keys that begin with `agent.agent-1:`; those of `agent-1-b` do not."""
    with signed_in(enrol_agent("agent-1")) as client:
        for key in ("agent.agent-1-b:unacked", "agent.agent-1b:unacked", "agent.agent-1.unacked"):
            with pytest.raises(redis.ResponseError, match=f"(?i){REFUSED}"):
                client.hget(key, "tag")


def test_redis_keeps_the_hash_of_a_password_alone(central: redis.Redis) -> None:
    credentials = enrol_agent("agent-1")
    password = credentials.broker["url"].partition("@")[0].rpartition(":")[2]
    assert password not in " ".join(map(str, central.acl_list()))
    assert can_sign_in(credentials)


def test_after_a_restart_that_lost_everything_the_logins_come_back(central: redis.Redis) -> None:
    kept = [enrol_agent("agent-1"), enrol_agent("gateway-1", kind="gateway", backend="gateway")]
    logins_forget(central)
    assert not any(map(can_sign_in, kept))
    assert broker.logins_restore() == broker.Restored(made=2, dropped=0)
    assert all(map(can_sign_in, kept))
    assert central.script_exists(*(central.register_script(one).sha for one in broker_rights.SCRIPTS)) == [True]


def test_logins_that_are_right_are_left_alone_and_connected(central: redis.Redis) -> None:
    with signed_in(enrol_agent("agent-1")) as client:
        assert client.ping()
        before = connections(central)
        assert broker.logins_restore() == broker.Restored(made=0, dropped=0)
        assert client.ping()
        assert connections(central) == before != []


def connections(client: redis.Redis) -> list[str]:
    return [one["id"] for one in client.client_list() if one["user"] == broker.login_name("agent-1")]


@pytest.mark.parametrize(
    "change",
    [
        ["off"],
        ["resetpass", ">guessed"],
        [">guessed"],
        ["+@all"],
        ["~*"],
        ["resetkeys", "~agent.agent-2:*"],
        ["&*"],
        ["-brpop"],
        ["nopass"],
    ],
    ids=" ".join,
)
def test_a_login_that_was_changed_is_put_right(central: redis.Redis, change: list[str]) -> None:
    credentials = enrol_agent("agent-1")
    before = central.acl_list()
    do(central, "ACL SETUSER", broker.login_name("agent-1"), *change)
    assert central.acl_list() != before
    assert broker.logins_restore() == broker.Restored(made=1, dropped=0)
    assert central.acl_list() == before
    assert can_sign_in(credentials)


def test_a_login_of_nobody_is_dropped_and_those_of_others_are_not(central: redis.Redis) -> None:
    enrol_agent("agent-1")
    do(central, "ACL SETUSER", broker.login_name("ghost"), "on", ">x", "~agent.ghost:*", "+@all")
    do(central, "ACL SETUSER", "metrics", "on", ">x", "+info")
    central.lpush("agent.ghost:agent.ghost", "x")
    assert broker.logins_restore() == broker.Restored(made=0, dropped=1)
    assert broker.login_name("ghost") not in central.acl_users()
    assert {broker.login_name("agent-1"), "metrics"} <= {*central.acl_users()}
    assert central.exists("agent.ghost:agent.ghost") == 0


@pytest.mark.parametrize("name", ["agent.agent-1.0123456789ab", "agent.of-staging", "agent.agent-1", "agent.."])
def test_another_control_planes_logins_on_the_same_server_are_left_alone(
    central: redis.Redis, name: str, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    do(central, "ACL SETUSER", name, "on", ">x", "~agent.agent-1:*", "+ping")
    before = central.acl_getuser(name)
    ours = enrol_agent("agent-1")
    assert broker.logins_restore() == broker.Restored(made=0, dropped=0)
    with django_capture_on_commit_callbacks(execute=True):
        agent_revoke(actor=SYSTEM, agent=Agent.objects.get(pk="agent-1"))
    assert broker.logins_restore() == broker.Restored(made=0, dropped=0)
    assert central.acl_getuser(name) == before
    assert not can_sign_in(ours)


def test_who_was_taken_over_while_the_broker_was_away_is_looked_at_first(
    central: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "LOOKED_AT", 1)
    before, there = [enrol_agent(f"agent-{number}") for number in range(10)], settings.ENVIRONMENT
    _, secret = make_join_token(agent="agent-7")
    with signed_in(before[7]) as client:
        assert client.ping()
        settings.ENVIRONMENT = away(there)
        enrol(
            token=secret.secret,
            kind="engine",
            name="agent-7",
            about=about_agent(),
            now=timezone.now(),
            address="192.0.2.7",
        )
        settings.ENVIRONMENT = there
        assert can_sign_in(before[7])
        assert broker.logins_restore() == broker.Restored(made=1, dropped=0)
        with pytest.raises((redis.ConnectionError, redis.AuthenticationError)):
            client.ping()
    assert not can_sign_in(before[7])


def test_who_is_revoked_is_thrown_out_at_once_with_what_lay_in_its_queue(
    central: redis.Redis, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    credentials = enrol_agent("agent-1")
    command_send("agent-1", "too late")
    with signed_in(credentials) as client:
        assert client.llen("agent.agent-1:agent.agent-1") == 1
        with django_capture_on_commit_callbacks(execute=True):
            agent_revoke(actor=SYSTEM, agent=Agent.objects.get(pk="agent-1"))
        with pytest.raises((redis.ConnectionError, redis.AuthenticationError)):
            client.llen("agent.agent-1:agent.agent-1")
    assert not can_sign_in(credentials)
    assert central.keys("agent.agent-1:*") == []


@pytest.mark.django_db(transaction=True)
def test_whose_end_is_undone_with_its_transaction_goes_on(central: redis.Redis) -> None:
    credentials = enrol_agent("agent-1")
    with transaction.atomic():
        agent_revoke(actor=SYSTEM, agent=Agent.objects.get(pk="agent-1"))
        transaction.set_rollback(True)
    assert can_sign_in(credentials)


def test_who_is_taken_over_is_thrown_out_and_who_took_over_is_in(central: redis.Redis) -> None:
    before = enrol_agent("agent-1")
    _, secret = make_join_token(agent="agent-1")
    with signed_in(before) as client:
        assert client.ping()
        after = enrol(
            token=secret.secret,
            kind="engine",
            name="agent-1",
            about=about_agent(),
            now=Agent.objects.get(pk="agent-1").created_at,
            address="192.0.2.7",
        )
        with pytest.raises((redis.ConnectionError, redis.AuthenticationError)):
            client.ping()
    assert not can_sign_in(before)
    assert can_sign_in(after)


def test_with_the_broker_away_agents_enrol_and_leave_all_the_same(
    central: redis.Redis, settings: Settings, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    there = settings.ENVIRONMENT
    settings.ENVIRONMENT = away(there)
    with pytest.raises(BrokerAway, match="Redis: "):
        broker.logins_restore()
    make_agent("agent-1")
    leaving = make_agent("agent-2")
    with django_capture_on_commit_callbacks(execute=True):
        agent_revoke(actor=SYSTEM, agent=leaving)
    settings.ENVIRONMENT = there
    assert broker.login_name("agent-1") not in central.acl_users()
    assert broker.logins_restore() == broker.Restored(made=1, dropped=0)
    assert broker.login_name("agent-1") in central.acl_users()


def away(environment: Environment) -> Environment:
    return replace(environment, redis_url=f"redis://127.0.0.1:{free_port()}/0")


def test_agents_are_told_the_address_that_is_theirs(central: redis.Redis, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, agent_redis_url="rediss://broker.example.com:6380/2")
    url = enrol_agent("agent-1").broker["url"]
    assert url.startswith(f"rediss://{broker.login_name('agent-1')}:")
    assert url.endswith("@broker.example.com:6380/2")


def test_agents_are_told_nothing_of_how_we_sign_in_ourselves(settings: Settings) -> None:
    ours = "redis://:first@broker.example.com:6379/0?username=lum&password=second&ssl_cert_reqs=none"
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, redis_url=ours, agent_redis_url=None)
    url = broker.agent_url("agent-1", "its-own")
    assert url == f"redis://{broker.login_name('agent-1')}:its-own@broker.example.com:6379/0?ssl_cert_reqs=none"
