"""Agents' logins, Celery and Channels on each server whose version docs/production.md calls tested."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import redis
from channels_redis.pubsub import RedisPubSubChannelLayer
from pytest_django.fixtures import Settings

from controlplane.doctor.broker import agent_login_problem, login_use_problem
from controlplane.fleet import broker
from tests.database.factories import enrol_agent
from tests.fleet.agent_workers import SECONDS, command_send, working
from tests.servers.embedded import temporary_home
from tests.servers.redis_versions import SERVERS, ServerUnavailable, server_running

pytestmark = pytest.mark.django_db


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, settings: Settings) -> Iterator[str]:
    """The URL of one server, which the control plane works with for this test."""
    with temporary_home() as config:
        try:
            with server_running(request.param, config) as url:
                settings.ENVIRONMENT = replace(settings.ENVIRONMENT, redis_url=url)
                yield url
        except ServerUnavailable as error:
            pytest.skip(f"no {request.param}: {error}")


def test_agents_and_pages_work_on_each_server(server: str) -> None:
    """In one test, because a worker takes a second to start."""
    credentials = enrol_agent("agent-1")
    assert broker.logins_restore() == broker.Restored(made=0, dropped=0)
    for text in ("first", "second"):
        command_send("agent-1", text)
    with working(credentials) as received:
        assert {received.get(timeout=SECONDS) for _ in range(2)} == {"first", "second"}
        command_send("agent-1", "third")
        assert received.get(timeout=SECONDS) == "third"
    with redis.Redis.from_url(credentials.broker["url"]) as client:
        for key in ("control", "agent.agent-10:agent.agent-10"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.rpop(key)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.publish("luminet:live", "x")
    assert asyncio.run(_group_message(server)) == {"type": "news", "number": 7}
    assert agent_login_problem(server) is None
    with redis.Redis.from_url(server, decode_responses=True) as client:
        assert {*client.acl_users()} == {"default", broker.login_name("agent-1")}


async def _group_message(url: str) -> object:
    layer = RedisPubSubChannelLayer(hosts=[url], prefix="luminet:live")
    channel = await layer.new_channel()
    await layer.group_add("pages", channel)
    await layer.group_send("pages", {"type": "news", "number": 7})
    async with asyncio.timeout(SECONDS):
        message = await layer.receive(channel)
    await layer.flush()
    return message


@contextmanager
def login(client: redis.Redis, *rules: str) -> Iterator[str]:
    """A login with these rules; its part of a URL."""
    client.execute_command("ACL SETUSER", "tried", "reset", "on", ">right", *rules)  # type: ignore[no-untyped-call]
    try:
        yield "tried:right"
    finally:
        client.acl_deluser("tried")


def url_of(server: str, login: str) -> str:
    return f"redis://{login}@{server.rpartition('@')[2]}"


def test_the_doctor_says_that_no_login_can_be_made(redis_server: str) -> None:
    with redis.Redis.from_url(redis_server) as client, login(client, "~*", "+@all", "-acl") as name:
        problem = agent_login_problem(url_of(redis_server, name))
        assert problem is not None
        assert problem.startswith("it refuses to make one: ")


@pytest.mark.parametrize(
    ("rules", "name", "problem"),
    [
        (["~q:*", "+@all"], "tried:wrong", "it makes one and then does not let it in: "),
        (["~q:*", "+ping", "+rpop"], "tried:right", "it lets one in and then refuses what a worker needs: "),
        (["~*", "+@all"], "tried:right", "such a login can read queues of others"),
    ],
)
def test_the_doctor_says_what_a_login_cannot_do(redis_server: str, rules: list[str], name: str, problem: str) -> None:
    with redis.Redis.from_url(redis_server) as client, login(client, *rules):
        found = login_use_problem(url_of(redis_server, name), "q:queue")
        assert found is not None
        assert found.startswith(problem)
