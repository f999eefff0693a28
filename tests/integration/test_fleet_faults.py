"""The faults a fleet must live through, on the real broker and database. Each test shows that its fault happened.

No test judges by time: it waits for what must come, and what must never happen is looked for in the end.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import psutil
import psycopg
import pytest

from controlplane.stack.services import luminet
from tests.bench.pages import NotAnswered
from tests.engines.processes import DEMO
from tests.fleet.fleets import Fleet, Part, fleet_running
from tests.support.ports import free_port
from tests.support.waiting import wait_until

_prefixes = (f"t{number}" for number in count(1))
_ttls = count(1_000)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_running() as running:
        running.ask("POST", "/orgs", {"slug": "acme", "name": "Acme"})
        yield running


@contextmanager
def agents_of(fleet: Fleet, number: int, *options: str) -> Iterator[tuple[Part, list[str]]]:
    """That many agents in sync, and nobody else; revoked in the end."""
    prefix = next(_prefixes)
    part = fleet.simulate(number, *options, prefix=prefix)
    try:
        wait_until(lambda: len(synced(fleet, prefix)) == number, f"{number} agents\n{part.said[-3000:]}")
        yield part, sorted(synced(fleet, prefix))
    finally:
        part.stop()
        for agent in shown(fleet, prefix):
            fleet.ask("DELETE", f"/fleet/agents/{agent}")


def shown(fleet: Fleet, prefix: str) -> dict[str, Any]:
    """Agents as operators see them, by id."""
    items = fleet.ask("GET", "/fleet/agents?limit=200")["items"]
    return {one["id"]: one for one in items if one["id"].startswith(f"{prefix}-") and one["state"] != "revoked"}


def synced(fleet: Fleet, prefix: str) -> list[str]:
    return [agent for agent, one in shown(fleet, prefix).items() if one["in_sync"]]


def publish(fleet: Fleet) -> int:
    """A TTL that nobody has published before; the revision."""
    return int(fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"ttl_seconds": next(_ttls)}})["revision"])


def everybody_heals(fleet: Fleet, agents: list[str]) -> None:
    """Everybody ends at the newest revision."""
    wait_until(lambda: all_newest(fleet, agents), f"{agents} at the newest revision")
    wait_until(lambda: all(one["in_sync"] for one in at(fleet, agents)), f"{agents} to say so")


def at(fleet: Fleet, agents: list[str]) -> list[Any]:
    return [fleet.ask("GET", f"/fleet/agents/{agent}") for agent in agents]


def all_newest(fleet: Fleet, agents: list[str]) -> bool:
    """Every publish leaves each agent a step, which ends when it holds what was published."""
    found = fleet.rows(
        "SELECT desired_hash = applied_hash AND desired_generation = applied_generation AND NOT EXISTS "
        "(SELECT FROM fleet_operationstep WHERE agent_id = fleet_agent.id AND state = 'waiting') "
        "FROM fleet_agent WHERE id = ANY(%s)",
        agents,
    )
    return len(found) == len(agents) and all(is_newest for (is_newest,) in found)


def desired_hash(fleet: Fleet, agent: str) -> str:
    return str(fleet.value("SELECT desired_hash FROM fleet_agent WHERE id = %s", agent))


def applied_hash(fleet: Fleet, agent: str) -> str:
    return str(fleet.value("SELECT applied_hash FROM fleet_agent WHERE id = %s", agent))


def generation(fleet: Fleet, agent: str) -> int:
    return int(fleet.value("SELECT desired_generation FROM fleet_agent WHERE id = %s", agent))


def queue_of(agent: str) -> str:
    return f"agent.{agent}:agent.{agent}"


def queued(fleet: Fleet, agent: str) -> list[bytes]:
    with fleet.broker() as broker:
        return list(broker.lrange(queue_of(agent), 0, -1))


def publish_queued(fleet: Fleet, agents: list[str]) -> None:
    """Publish, and wait until each of these, who are stopped in their tracks, has one more message waiting."""
    before = {agent: len(queued(fleet, agent)) for agent in agents}
    publish(fleet)
    wait_until(lambda: all(len(queued(fleet, one)) > before[one] for one in agents), f"messages for {agents}")


@contextmanager
def paused(part: Part) -> Iterator[None]:
    part.pause()
    try:
        yield
    finally:
        part.resume()


@contextmanager
def locked(fleet: Fleet, statement: str) -> Iterator[None]:
    """Locks held by a transaction of somebody else's, until the end."""
    with psycopg.connect(fleet.environment["LUMINET_DATABASE_URL"]) as connection:
        connection.execute(statement)
        yield
        connection.rollback()


def waiting(fleet: Fleet) -> list[int]:
    """The backends that wait for a lock."""
    return [pid for (pid,) in fleet.rows("SELECT DISTINCT pid FROM pg_locks WHERE NOT granted")]


# The broker


def test_a_redis_that_restarts_empty_in_the_middle_of_a_push_is_only_a_delay(fleet: Fleet) -> None:
    with agents_of(fleet, 3) as (part, agents):
        with paused(part):
            publish_queued(fleet, agents)
            fleet.parts["redis"].kill()
            fleet.parts["redis"].start()
            assert not any(queued(fleet, agent) for agent in agents), "what was on its way is lost"
        everybody_heals(fleet, agents)
        wait_until(lambda: {*agents} <= logins(fleet), f"the agents' logins\n{fleet.said()}")
        publish(fleet)
        everybody_heals(fleet, agents)


def logins(fleet: Fleet) -> set[str]:
    """Whose there are."""
    with fleet.broker() as broker:
        return {name.split(".")[1] for name in broker.acl_users() if name.startswith("agent.")}


def test_duplicate_reordered_and_delayed_messages_bring_nobody_back(fleet: Fleet) -> None:
    with agents_of(fleet, 1) as (part, (agent,)):
        with paused(part):
            for _ in range(4):
                publish_queued(fleet, [agent])
            messages = queued(fleet, agent)
            assert len(messages) >= 4
            delayed, *others = messages
            with fleet.broker() as broker:
                broker.delete(queue_of(agent))
                for message in [*reversed(others), *others, *others]:
                    broker.rpush(queue_of(agent), message)
        everybody_heals(fleet, [agent])
        with fleet.broker() as broker:
            broker.lpush(queue_of(agent), delayed)
        refused = wait_until(lambda: {"older", "replayed"} & set(refusals(fleet, agent)), "a message that is refused")
        assert refused
        everybody_heals(fleet, [agent])
        assert never_back(fleet, agent)


def refusals(fleet: Fleet, agent: str) -> dict[str, int]:
    rows = fleet.rows("SELECT reason, count FROM fleet_refusedcommands WHERE agent_id = %s", agent)
    return {reason: int(number) for reason, number in rows}


def never_back(fleet: Fleet, agent: str) -> bool:
    """By what the agent itself says it obeyed, in order."""
    numbers: dict[str, int] = dict(fleet.rows(GENERATIONS, agent))
    held = [numbers[hash_] for hash_ in obeyed(fleet, agent)]
    assert held
    return held == sorted(held)


GENERATIONS = "SELECT hash, max(number) FROM fleet_agentgeneration WHERE agent_id = %s GROUP BY hash"


def obeyed(fleet: Fleet, agent: str) -> list[str]:
    lines = (line for part in fleet.agents for line in part.said.splitlines() if f"{agent} obeys " in line)
    return [str(json.loads(line)["event"]).rsplit(" ", 1)[1] for line in lines]


# The control plane


def test_a_worker_killed_in_the_middle_of_a_task_leaves_nothing_undone(fleet: Fleet) -> None:
    with agents_of(fleet, 2) as (_, agents):
        with locked(fleet, "SELECT 1 FROM fleet_agent FOR NO KEY UPDATE"):
            publish(fleet)
            wait_until(lambda: waiting(fleet), "a task that waits for the agents' rows")
            fleet.parts["worker"].kill()
            with fleet.broker() as broker:
                assert broker.hlen("unacked") > 0, "it died in the middle of a task"
        fleet.parts["worker"].start()
        everybody_heals(fleet, agents)


def test_two_workers_that_plan_at_once_number_every_state_once(fleet: Fleet) -> None:
    second = second_worker(fleet)
    try:
        with agents_of(fleet, 3) as (_, agents):
            with locked(fleet, "SELECT 1 FROM fleet_agent FOR NO KEY UPDATE"):
                publish(fleet)
                wait_until(lambda: len(waiting(fleet)) >= 2, "two plans that wait")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: publish(fleet), range(12)))
            everybody_heals(fleet, agents)
            for agent in agents:
                numbers = [
                    number
                    for (number,) in fleet.rows(
                        "SELECT number FROM fleet_agentgeneration WHERE agent_id = %s ORDER BY number", agent
                    )
                ]
                assert numbers == list(range(numbers[0], generation(fleet, agent) + 1))
    finally:
        second.stop()


def second_worker(fleet: Fleet) -> Part:
    """Beside the first: both take tasks from one queue."""
    part = replace(fleet.parts["worker"], name="second worker", log=fleet.config.logs / "worker-2.log", process=None)
    part.start(is_awaited=False)
    wait_until(lambda: len(consumers(fleet)) >= 2, "the second worker")
    return part


def consumers(fleet: Fleet) -> list[Any]:
    """Connections that wait for tasks: each worker has one."""
    with fleet.broker() as broker:
        return [one for one in broker.client_list() if one["cmd"] == "brpop" and one["user"] == "default"]


def test_connections_to_the_database_dropped_in_the_middle_of_a_publish_change_nothing(fleet: Fleet) -> None:
    with agents_of(fleet, 2) as (_, agents), ThreadPoolExecutor(1) as beside:
        before = publish(fleet)
        with locked(fleet, "SELECT 1 FROM tenants_policylevel FOR UPDATE"):
            publishing = beside.submit(publish, fleet)
            wait_until(lambda: waiting(fleet), "a publish that is under way")
            assert dropped(fleet) > 0
        with pytest.raises(NotAnswered, match="status 50"):
            publishing.result()
        assert published(fleet) == before
        assert publish(fleet) == before + 1
        everybody_heals(fleet, agents)


def dropped(fleet: Fleet) -> int:
    """Return how many of the application's connections were ended: all that wait for a lock, and all that are idle."""
    with psycopg.connect(fleet.environment["LUMINET_DATABASE_URL"], autocommit=True) as application:
        ended = application.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user "
            "AND pid <> pg_backend_pid() AND (pid IN (SELECT pid FROM pg_locks WHERE NOT granted) OR state = 'idle')"
        )
        return len(ended.fetchall())


def published(fleet: Fleet) -> int:
    return int(
        fleet.value(
            "SELECT l.revision FROM tenants_policylevel l JOIN tenants_organisation o ON o.id = "
            "l.organisation_id WHERE o.slug = 'acme' AND l.namespace_id IS NULL"
        )
    )


# The agents


def test_an_agent_that_was_away_for_forty_revisions_comes_back_to_the_newest_alone(fleet: Fleet) -> None:
    with agents_of(fleet, 1) as (part, (agent,)):
        held = generation(fleet, agent)
        part.kill()
        for _ in range(40):
            publish(fleet)
        wait_until(lambda: generation(fleet, agent) > held, "what it is to hold")
        newest = fleet.value("SELECT desired_hash FROM fleet_agent WHERE id = %s", agent)
        assert applied_hash(fleet, agent) != newest
        part.start()
        everybody_heals(fleet, [agent])
        assert never_back(fleet, agent)


def test_an_agents_clock_ten_minutes_off_is_shown_and_matters_to_nobody(fleet: Fleet) -> None:
    for skew in (600, -600):
        with agents_of(fleet, 1, f"--clock-skew={skew}") as (_, (agent,)):
            why = wait_until(partial(condition, fleet, agent, "clock_skew"), "its clock to be shown")["why"]
            assert ("10 min ahead" if skew > 0 else "10 min behind") in why
            publish(fleet)
            everybody_heals(fleet, [agent])
            assert refusals(fleet, agent) == {}


def condition(fleet: Fleet, agent: str, kind: str) -> Any:
    return fleet.ask("GET", f"/fleet/agents/{agent}")["conditions"].get(kind)


def test_a_purge_while_an_agent_is_away_waits_for_its_receipt(fleet: Fleet) -> None:
    with agents_of(fleet, 1) as (_, (here,)), agents_of(fleet, 1) as (away, (absent,)):
        with paused(away):
            operation = fleet.ask("POST", "/orgs/acme/namespaces/default/purge", {})["operation"]
            receipts = wait_until(lambda: told(fleet, operation)["receipts"], "the first receipt")
            assert told(fleet, operation)["state"] == "running"
            assert [one["agent"] for one in receipts] == [here]
        wait_until(lambda: told(fleet, operation)["state"] == "done", "the other receipt")
        assert sorted(one["agent"] for one in told(fleet, operation)["receipts"]) == sorted([here, absent])
        everybody_heals(fleet, [here, absent])


def test_an_agent_that_dies_before_a_purge_proves_it_when_it_is_back(fleet: Fleet) -> None:
    with agents_of(fleet, 1) as (part, (agent,)):
        part.kill()
        operation = fleet.ask("POST", "/orgs/acme/namespaces/default/purge", {})["operation"]
        publish(fleet)
        wait_until(lambda: queued(fleet, agent), "messages for nobody")
        assert told(fleet, operation)["state"] == "running"
        part.start()
        wait_until(lambda: told(fleet, operation)["state"] == "done", "its receipt")
        assert [one["agent"] for one in told(fleet, operation)["receipts"]] == [agent]
        everybody_heals(fleet, [agent])


def told(fleet: Fleet, operation: str) -> Any:
    return fleet.ask("GET", f"/operations/{operation}")


def test_an_engine_dead_behind_a_live_sidecar_is_shown_and_brought_back(fleet: Fleet) -> None:
    """The one test here with a real engine: what is killed is its process, and its sidecar lives on."""
    with real_agent(fleet) as (part, agent):
        before = engine_of(part)
        boot = engine_boot(fleet, agent)
        before.kill()
        wait_until(lambda: condition(fleet, agent, "engine_down"), "the dead engine to be shown")
        assert part.is_running
        publish(fleet)
        everybody_heals(fleet, [agent])
        wait_until(lambda: at(fleet, [agent])[0]["state"] == "ready", f"another engine\n{part.said[-3000:]}")
        assert engine_of(part).pid != before.pid
        assert engine_boot(fleet, agent) != boot


@contextmanager
def real_agent(fleet: Fleet) -> Iterator[tuple[Part, str]]:
    name, port = next(_prefixes), free_port()
    home = fleet.config.home / name
    command = luminet("agent", "--join", fleet.web, "--name", name, "--home", str(home), "--model", str(DEMO))
    engine = ("--port", str(port), "--status-port", str(free_port()), "--pool", "32MiB", "--device", "cpu")
    part = Part(
        name, (*command, *engine), {"LUMINET_JOIN_TOKEN": fleet.tokens["join"]}, fleet.config.logs / f"{name}.log"
    )
    fleet.agents.append(part)
    part.start()
    try:
        wait_until(lambda: name in agents_ready(fleet), f"a real agent\n{part.said[-3000:]}")
        yield part, name
    finally:
        part.stop()
        fleet.ask("DELETE", f"/fleet/agents/{name}")


def agents_ready(fleet: Fleet) -> set[str]:
    items = fleet.ask("GET", "/fleet/agents?limit=200")["items"]
    return {one["id"] for one in items if one["state"] == "ready" and one["in_sync"]}


def engine_of(part: Part) -> psutil.Process:
    """The process that its sidecar has started."""
    return wait_until(lambda: next(iter(psutil.Process(part.pid).children()), None), "an engine's process")


def engine_boot(fleet: Fleet, agent: str) -> str:
    return str(fleet.value("SELECT heartbeat->'engine'->>'boot' FROM fleet_agent WHERE id = %s", agent))
