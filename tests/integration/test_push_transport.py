"""The messages themselves, read by real Celery workers: an agent's under its own login, and the control plane's."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import Queue
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import task_prerun
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from kombu import Connection
from kombu import Queue as KombuQueue
from pytest_django.fixtures import Settings

from controlplane.celery import app
from controlplane.common.request_id import request_id_bound, request_id_current
from controlplane.fleet import broker
from controlplane.fleet.errors import BrokerAway
from controlplane.fleet.keys import sealing_key, verifying_key
from controlplane.fleet.models import Agent
from controlplane.rollouts import waking
from controlplane.rollouts.planner import plan_carry_out
from controlplane.rollouts.transport import Outgoing, commands_send
from controlplane.rollouts.waking import ASKED_KEY, Waker, push_ask
from engine_agent.contracts import sealing, wire
from tenants.levels import FLEET
from tests.database.factories import enrol_agent, make_agent, publish
from tests.fleet.queues import broker as connected
from tests.fleet.queues import commands_taken, messages_taken
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.web.api import make_organisation

SECONDS = 20


def command(agent: str, number: int = 1) -> wire.Command:
    now = time.time()
    return wire.Command(agent, f"command-{number}", "wake", number, now, now + 30, {})


def sent(*commands: wire.Command) -> None:
    commands_send([Outgoing(one, 1) for one in commands], url=settings.ENVIRONMENT.redis_url)


def opened(sealed: str, agent: str) -> wire.Command:
    verifying = sealing.verifying_key(verifying_key())
    key = sealing_key(agent, 1)
    return wire.command_decode(sealing.command_open(sealed, agent=agent, key=key, verifying=verifying))


def agent_app(url: str, agent: str) -> Celery:
    made = Celery("agent", broker=url, set_as_current=False)
    made.conf.update(
        broker_transport_options={"global_keyprefix": broker.key_prefix(agent)},
        task_default_queue=f"agent.{agent}",
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
    )
    return made


@contextmanager
def agent_worker(url: str, agent: str) -> Iterator["Queue[str]"]:
    """A worker as an agent has it; what it is told."""
    told: Queue[str] = Queue()
    made = agent_app(url, agent)
    made.task(name=wire.COMMAND_TASK, shared=False)(told.put)
    with start_worker(made, pool="threads", concurrency=1, perform_ping_check=False, shutdown_timeout=30):
        yield told


# Commands


@pytest.mark.django_db
def test_a_command_comes_to_the_agents_worker_under_its_own_login(redis_server: str) -> None:
    credentials = enrol_agent("agent-1")
    with agent_worker(credentials.broker["url"], "agent-1") as told:
        sent(command("agent-1", 1), command("agent-1", 2))
        found = [opened(told.get(timeout=SECONDS), "agent-1").id for _ in range(2)]
    assert found == ["command-1", "command-2"]


def test_a_command_comes_to_no_other_agents_worker(redis_server: str) -> None:
    with agent_worker(redis_server, "agent-1") as told:
        sent(command("agent-11"), command("agent-1"))
        assert opened(told.get(timeout=SECONDS), "agent-1").agent == "agent-1"
        assert told.empty()
    assert [one.agent for one in commands_taken("agent-11")] == ["agent-11"]


def test_a_command_that_a_worker_dies_over_is_given_back_to_the_same_queue(redis_server: str) -> None:
    sent(command("agent-1"))
    options = {"global_keyprefix": broker.key_prefix("agent-1")}
    with Connection(redis_server, transport_options=options) as connection:
        queue = KombuQueue("agent.agent-1", channel=connection.default_channel)
        message = queue.get()
        assert message is not None
        assert messages_taken("agent-1") == []
        channel: Any = connection.default_channel
        channel.qos.restore_by_tag(message.delivery_tag)  # as when its time is up
    (again,) = messages_taken("agent-1")
    assert again["headers"]["redelivered"] is True


def test_what_cannot_be_sent_is_said_and_not_taken_for_sent() -> None:
    with pytest.raises(BrokerAway):
        commands_send([Outgoing(command("agent-1"), 1)], url=f"redis://127.0.0.1:{free_port()}/0")


@pytest.mark.django_db
def test_with_the_broker_away_nothing_is_written_down_so_it_is_sent_when_it_is_back(away: None) -> None:
    make_agent("agent-1")
    assert plan_carry_out(now=timezone.now()) == 0
    found = Agent.objects.get()
    assert (found.desired_generation, found.push_generation, found.push_attempts) == (1, 0, 0)


# Waking


@pytest.fixture
def away(settings: Settings) -> None:
    """Where Redis should be, nobody listens."""
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, redis_url=f"redis://127.0.0.1:{free_port()}/0")


def waiting() -> int:
    """Tasks in the control plane's queue."""
    with connected() as client:
        return int(client.llen("control"))


def test_many_commits_in_a_row_ask_for_one_plan(redis_server: str) -> None:
    for _ in range(5):
        push_ask("request-1")
    assert waiting() == 1


def test_once_a_plan_has_begun_a_commit_asks_for_another(redis_server: str) -> None:
    push_ask(None)
    waking.push_begins()
    push_ask(None)
    assert waiting() == 2


def test_an_asking_that_came_to_nothing_is_forgotten(redis_server: str) -> None:
    push_ask(None)
    with connected() as client:
        assert 0 < client.ttl(ASKED_KEY) <= waking.ASKED_SECONDS


@pytest.mark.django_db(transaction=True)
def test_a_publish_asks_for_a_plan_once_it_is_committed(redis_server: str) -> None:
    make_organisation("acme")
    wait_until(waiting)
    with connected() as client:
        client.delete("control", ASKED_KEY)
    with transaction.atomic():
        publish(FLEET, ttl_seconds=60)
        time.sleep(0.1)
        assert waiting() == 0
    wait_until(waiting)


@pytest.mark.django_db(transaction=True)
def test_with_redis_away_a_publish_neither_fails_nor_waits(away: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who waits for Redis is a thread of its own."""
    asked: Queue[str] = Queue()
    really = waking.push_ask

    def spied(request_id: str | None) -> None:
        asked.put(threading.current_thread().name)
        really(request_id)

    monkeypatch.setattr(waking, "push_ask", spied)
    publish(FLEET, ttl_seconds=60)
    assert asked.get(timeout=SECONDS) == "push-waker"
    publish(FLEET, ttl_seconds=70)
    assert asked.get(timeout=SECONDS) == "push-waker"  # and it goes on


def test_a_broker_that_hangs_holds_up_nobody_who_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = threading.Event(), threading.Event()

    def hangs(request_id: str | None) -> None:
        begun.set()
        over.wait(SECONDS)

    monkeypatch.setattr(waking, "push_ask", hangs)
    waker = Waker()
    waker.wake()
    assert begun.wait(SECONDS)
    for _ in range(100):
        waker.wake()
    assert not over.is_set()
    over.set()


@pytest.mark.django_db(transaction=True)
def test_a_publish_is_in_the_agents_queue_through_the_control_planes_own_worker(redis_server: str) -> None:
    seen: Queue[str | None] = Queue()

    def look(sender: Any, **_: Any) -> None:
        if sender.name == "rollouts.push":
            seen.put(request_id_current())

    make_organisation("acme")
    make_agent("agent-1")
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, shutdown_timeout=30):
        wait_until(lambda: Agent.objects.get().push_generation == 1)
        task_prerun.connect(look)
        with request_id_bound("from-the-web"):
            publish(FLEET, ttl_seconds=60)
        wait_until(lambda: Agent.objects.get().push_generation == 2)
        task_prerun.disconnect(look)
    assert seen.get(timeout=SECONDS) == "from-the-web"
    assert [one.generation for one in commands_taken("agent-1")][-1] == 2
