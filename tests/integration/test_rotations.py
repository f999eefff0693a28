"""Each secret is replaced on a running fleet, as docs/production.md says, while a customer goes on asking."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
import redis

from controlplane.common.health import beat_check, worker_check, worker_hostname
from tests.fleet.fleets import Fleet, Part, fleet_running
from tests.fleet.uninterrupted import (
    Asking,
    all_in_sync,
    asked,
    control_plane_start,
    control_plane_stop,
    luminet_run,
    printed,
    serves,
)
from tests.support.waiting import wait_until
from tests.usage.chats import Customer
from tests.usage.fleets import customer, engine_agent, gateway, organisation_make

NAMES = ["engine-1", "gateway"]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        yield running


@pytest.fixture(scope="module")
def acme(fleet: Fleet) -> Customer:
    organisation_make(fleet, "acme")
    return customer(fleet, "acme")


@pytest.fixture(scope="module")
def agents(fleet: Fleet, acme: Customer) -> Iterator[tuple[list[Part], str]]:
    with engine_agent(fleet, "engine-1") as (engine, _), gateway(fleet) as (front, url):
        wait_until(lambda: asked(url, acme, "Hello?").status_code == 200, "an answer")
        yield [engine, front], url


@pytest.fixture
def asking(agents: tuple[list[Part], str], acme: Customer) -> Asking:
    return Asking(agents[1], acme)


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def secret(fleet: Fleet, name: str) -> str:
    """As the stack made it, or as a test has replaced it since."""
    kept = Path(fleet.environment["LUMINET_SECRETS_DIR"]) / name
    return fleet.environment.get(f"LUMINET_{name.upper()}") or kept.read_text().strip()


def restarted_with(fleet: Fleet, **changes: str) -> None:
    control_plane_stop(fleet)
    broker = changes.get("LUMINET_REDIS_URL", fleet.environment["LUMINET_REDIS_URL"])
    fleet.parts["worker"].check = lambda: worker_check(broker, worker_hostname())
    fleet.parts["beat"].check = lambda: beat_check(broker)
    for one in (fleet.environment, *(fleet.parts[name].environment for name in ("web", "worker", "beat"))):
        one |= changes  # type: ignore[operator]  # they are dictionaries here
    control_plane_start(fleet)


def publishes(fleet: Fleet, ttl_seconds: int) -> None:
    """And every agent takes it: commands, seals and logins all work."""
    fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"kv_dtype": "bf16", "ttl_seconds": ttl_seconds}})
    wait_until(lambda: all_in_sync(fleet, NAMES), "agents to take what was published")


def test_a_new_master_key_opens_what_the_old_one_sealed_and_the_old_one_nothing(fleet: Fleet, asking: Asking) -> None:
    old, new = {"LUMINET_MASTER_KEY": secret(fleet, "master_key")}, {"LUMINET_MASTER_KEY": key()}
    with asking.going_on():
        control_plane_stop(fleet)
        previous = {"LUMINET_PREVIOUS_MASTER_KEY": old["LUMINET_MASTER_KEY"]}
        done = luminet_run(fleet, "rotate-master-key", **new, **previous)
        assert done.returncode == 0, done.stderr
        restarted_with(fleet, **new)
        publishes(fleet, 61)
    assert set(asking.statuses) == {200}
    assert luminet_run(fleet, "rotate-master-key", **old).returncode != 0


def test_database_and_redis_take_new_passwords_and_agents_notice_nothing(fleet: Fleet, asking: Asking) -> None:
    place, broker = fleet.environment["LUMINET_DATABASE_URL"], fleet.environment["LUMINET_REDIS_URL"]
    with asking.going_on():
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute("ALTER ROLE CURRENT_USER PASSWORD 'anotherdatabasepassword'")
        with redis.Redis.from_url(broker) as client:
            client.config_set("requirepass", "anotherredispassword")
        restarted_with(
            fleet,
            LUMINET_DATABASE_URL=_with_password(place, "anotherdatabasepassword"),
            LUMINET_REDIS_URL=_with_password(broker, "anotherredispassword"),
        )
        publishes(fleet, 62)
    assert set(asking.statuses) == {200}
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(place)
    with pytest.raises(redis.AuthenticationError), redis.Redis.from_url(broker) as client:
        client.ping()


def _with_password(url: str, password: str) -> str:
    head, _, place = url.rpartition("@")
    return f"{head.rpartition(':')[0]}:{password}@{place}"


def test_the_metrics_token_is_what_it_was_last_started_with(fleet: Fleet) -> None:
    for token in ("a first token of metrics", "a second token of metrics"):
        restarted_with(fleet, LUMINET_METRICS_TOKEN=token)
        assert _metrics(fleet, token) == 200
    assert _metrics(fleet, "a first token of metrics") in (401, 403)


def _metrics(fleet: Fleet, token: str) -> int:
    return httpx.get(f"{fleet.web}/metrics", headers={"authorization": f"Bearer {token}"}).status_code


def test_a_customer_changes_keys_without_a_gap(fleet: Fleet, agents: tuple[list[Part], str]) -> None:
    old = customer(fleet, "acme", "first")
    old_id = fleet.value("SELECT id FROM tenants_apikey ORDER BY created_at DESC LIMIT 1")
    wait_until(lambda: asked(agents[1], old, "Hello?").status_code == 200, "an answer to the first key")
    new = customer(fleet, "acme", "second")
    wait_until(lambda: asked(agents[1], new, "Hello?").status_code == 200, "an answer to the second key")
    assert asked(agents[1], old, "And I?").status_code == 200, "both are good until one is revoked"
    fleet.ask("DELETE", f"/orgs/acme/keys/{old_id}")
    wait_until(lambda: asked(agents[1], old, "And I?").status_code == 401, "the first key to be refused")
    assert asked(agents[1], new, "And I?").status_code == 200


def test_an_agent_takes_a_new_token_and_serves_on(fleet: Fleet, asking: Asking) -> None:
    before = fleet.value("SELECT token_hash FROM fleet_agent WHERE id = 'engine-1'")
    with asking.going_on():
        fleet.ask("POST", "/fleet/agents/engine-1/rotate-token", {})
        wait_until(
            lambda: fleet.value("SELECT token_hash FROM fleet_agent WHERE id = 'engine-1'") != before, "another token"
        )
        publishes(fleet, 63)
    assert set(asking.statuses) == {200}


def test_with_a_new_signing_key_agents_are_restarted_and_the_trail_of_before_is_still_proven(
    fleet: Fleet, agents: tuple[list[Part], str], acme: Customer
) -> None:
    parts, url = agents
    old = secret(fleet, "signing_key")
    restarted_with(fleet, LUMINET_SIGNING_KEY=key(), LUMINET_PREVIOUS_SIGNING_KEYS=old)
    for part in parts:
        part.stop()
        part.start()
    wait_until(lambda: serves(url, acme), "an answer after the restart")
    publishes(fleet, 64)
    assert printed(fleet, "audit", "verify")["sound"]
    forgotten = luminet_run(fleet, "audit", "verify", LUMINET_PREVIOUS_SIGNING_KEYS="")
    assert forgotten.returncode == 1
    assert "record 1 was changed" in forgotten.stderr
