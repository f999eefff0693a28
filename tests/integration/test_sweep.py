"""What is done every two seconds: whatever was lost on the way is only late."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import redis
from django.conf import settings as configured
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from controlplane.celery import app
from controlplane.fleet.broker import login_name
from controlplane.fleet.models import Agent
from controlplane.fleet.operations import operation_of_agents
from controlplane.rollouts import sweeping
from controlplane.rollouts.planner import plan_carry_out
from controlplane.rollouts.sweeping import LoginsKept, sweep
from controlplane.stack.services import redis_url
from tenants.actor import SYSTEM
from tenants.audit import audited
from tests.database.factories import make_agent
from tests.fleet.queues import acknowledged, broker, commands_taken, messages_taken
from tests.servers.embedded import redis_running, temporary_home
from tests.support.ports import free_port
from tests.web.api import make_organisation

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def agent() -> str:
    make_organisation("acme")
    make_agent("agent-1")
    return "agent-1"


def test_what_nobody_asked_to_plan_is_planned_and_sent(agent: str) -> None:
    assert sweep(now=NOW) == []
    (command,) = commands_taken(agent)
    assert command.body["target"] == Agent.objects.get().desired_hash


def test_what_an_emptied_redis_has_lost_is_sent_again(agent: str) -> None:
    plan_carry_out(now=NOW)
    with broker() as client:
        client.flushall()
    sweep(now=later(2))
    assert [one.generation for one in commands_taken(agent)] == [1]


def test_a_converged_fleet_is_left_alone(agent: str) -> None:
    sweep(now=NOW)
    acknowledged(agent)
    messages_taken(agent)
    assert sweep(now=later(60)) == []
    assert messages_taken(agent) == []


def test_an_operation_fails_at_its_deadline(agent: str) -> None:
    with audited():
        operation = operation_of_agents(actor=SYSTEM, deed="drain", agents=[agent], scope="fleet", now=NOW, seconds=5)
    sweep(now=later(4))
    operation.refresh_from_db()
    assert operation.state == "running"
    sweep(now=later(6))
    operation.refresh_from_db()
    assert (operation.state, operation.receipts[0]["note"]) == ("failed", "no receipt came before the deadline")


def test_what_one_part_cannot_do_keeps_no_other_from_its_own(agent: str, settings: Settings) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, redis_url=f"redis://127.0.0.1:{free_port()}/0")
    assert sweep(now=NOW) == ["logins"]  # needs Redis; the plan is made without
    assert Agent.objects.get().desired_generation == 1
    Agent.objects.update(last_seen_at=later(10))
    sweep(now=later(10))
    assert "behind" in Agent.objects.get().conditions


@pytest.mark.django_db(transaction=True)
def test_a_sweep_is_not_overtaken_by_the_next(agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, over = threading.Event(), threading.Event()

    def waits(now: datetime) -> None:
        under_way.set()
        over.wait(20)

    parts = sweeping.PARTS
    monkeypatch.setattr(sweeping, "PARTS", (("waits", waits),))

    def slow() -> None:
        sweep(now=NOW)
        connection.close()

    first = threading.Thread(target=slow)
    first.start()
    assert under_way.wait(20)
    monkeypatch.setattr(sweeping, "PARTS", parts)
    sweep(now=NOW)
    assert Agent.objects.get().desired_generation == 0
    over.set()
    first.join()
    sweep(now=NOW)
    assert Agent.objects.get().desired_generation == 1


# Logins


def has_login(url: str, agent: str) -> bool:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return login_name(agent) in client.acl_users()


def test_logins_that_a_restarted_redis_forgot_are_back_with_the_next_sweep(agent: str, settings: Settings) -> None:
    port, kept = free_port(), LoginsKept()
    url = redis_url(port, "only-for-this")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, redis_url=url)
    for _ in range(2):  # the second time less than ten seconds after the first
        with temporary_home() as config, redis_running(config, port=port, password="only-for-this", url=url):
            assert not has_login(url, agent)
            kept.keep(now=NOW)
            assert has_login(url, agent)


def test_a_sweep_that_a_clock_half_a_minute_behind_has_sent_is_done_all_the_same() -> None:
    sent_at = timezone.now() - timedelta(seconds=30)
    expires = app.conf.beat_schedule["sweep"]["options"]["expires"]
    assert sent_at + timedelta(seconds=expires) > timezone.now()


def test_everything_that_beat_sends_is_a_task_that_workers_know() -> None:
    app.loader.import_default_modules()
    assert {one["task"] for one in configured.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)
