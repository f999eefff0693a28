"""The gateway in a whole fleet: a real control plane, two real agents with the demo model, and their front door."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from controlplane.stack.services import luminet
from engine_agent.demo import model as demo
from tests.fleet.fleets import Fleet, Part, fleet_running
from tests.integration.asking import Asking, asking
from tests.integration.test_gateway import sample
from tests.support.ports import free_port
from tests.support.waiting import wait_until

MODEL, AGENTS = "model", ("agent-1", "agent-2")  # a model is called after its folder
# One computes as on a CPU without bfloat16, and can do a KV format that no policy names; the other as this CPU can.
DTYPES = {"agent-1": "fp32", "agent-2": "auto"}
FOLDER = Path(demo.__path__[0])
START_SECONDS = 300.0  # two engines, a control plane and their packages, on a busy machine
CLOCK_SECONDS = 5.0  # a gateway reads the control plane's clock off its answers, which may be slow to come
QUEUE = "agent.gateway-1:agent.gateway-1"
PROMPT = "The sea was calm and the ship sailed on through the night. " * 8


class FrontDoor:
    """The fleet's gateway, and a customer with a key."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.port = fleet, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = self.new_key()
        self.part = self.started("gateway-1", "gateway", "--port", str(self.port))

    def started(self, name: str, *command: str) -> Part:
        home = self.fleet.config.home / name
        options = ("--join", self.fleet.web, "--name", name, "--home", str(home), "--json-logs")
        environment = {"PYTHONUNBUFFERED": "1", "LUMINET_JOIN_TOKEN": self.fleet.tokens["join"]}
        part = Part(name, (*luminet(*command), *options), environment, self.fleet.config.logs / f"{name}.log")
        self.fleet.agents.append(part)
        part.start()
        return part

    def new_key(self) -> Any:
        return self.fleet.ask("POST", "/orgs/acme/keys", {"name": "tests", "scopes": ["infer"]})

    def complete(self, key: str | None = None, **fields: Any) -> httpx.Response:
        """Each prompt is another one from its first words on: where it goes, no cache and no session says."""
        body = {"model": MODEL, "prompt": f"{uuid4()}: {PROMPT}", "max_tokens": 1, "temperature": 0, **fields}
        headers = {"authorization": f"Bearer {key or self.key['secret']}"}
        return httpx.post(f"{self.url}/v1/completions", json=body, headers=headers, timeout=60)

    def status(self, key: str | None = None) -> int:
        try:
            return self.complete(key).status_code
        except httpx.TransportError:
            return 0

    def seen(self, header: str, count: int = 16) -> set[str]:
        """In so many answers: that many prompts all go to one of two engines once in thirty thousand times."""
        return {self.complete().headers.get(header, "") for _ in range(count)}

    def agent(self, name: str) -> Any:
        return self.fleet.ask("GET", f"/fleet/agents/{name}")

    def all_in_sync(self) -> bool:
        found = [self.agent(name) for name in (*AGENTS, "gateway-1")]
        return all(one["in_sync"] and one["state"] == "ready" for one in found)


@pytest.fixture(scope="module")
def door() -> Iterator[FrontDoor]:
    with fleet_running() as fleet:
        fleet.ask("POST", "/orgs", {"slug": "acme", "name": "Acme"})
        fleet.ask("PUT", "/orgs/acme/policy", {"policy": {"kv_dtype": "bf16", "request_kv_dtypes": []}})
        found = FrontDoor(fleet)
        for name in AGENTS:
            port = free_port()
            engine = ("--model", str(FOLDER), "--port", str(port), "--status-port", str(free_port()))
            found.started(name, "agent", *engine, "--pool", "32MiB", "--device", "cpu", "--dtype", DTYPES[name])
        wait_until(lambda: known(found) and found.all_in_sync(), "the fleet", seconds=START_SECONDS)
        wait_until(lambda: found.seen("x-luminet-agent") == set(AGENTS), f"both engines\n{fleet.said()}")
        yield found


def known(door: FrontDoor) -> bool:
    items = door.fleet.ask("GET", "/fleet/agents")["items"]
    return {one["id"] for one in items} == {*AGENTS, "gateway-1"}


def test_a_key_made_in_the_api_is_good_at_the_gateway_and_a_deleted_one_is_not(door: FrontDoor) -> None:
    key = door.new_key()
    wait_until(lambda: door.status(key["secret"]) == 200, "the key")
    door.fleet.ask("DELETE", f"/orgs/acme/keys/{key['id']}")
    wait_until(lambda: door.status(key["secret"]) == 401, "its end")
    assert door.status() == 200


# Whoever may not any more: from the API's answer to the gateway's refusal


class Customer:
    """An organisation of its own, with a key that is good at the gateway."""

    def __init__(self, door: FrontDoor, slug: str) -> None:
        self.door, self.path = door, f"/orgs/{slug}"
        door.fleet.ask("POST", "/orgs", {"slug": slug, "name": slug})
        door.fleet.ask("PUT", f"{self.path}/policy", {"policy": {"kv_dtype": "bf16", "request_kv_dtypes": []}})
        self.key = self.new_key()

    def new_key(self) -> Any:
        key = self.door.fleet.ask("POST", f"{self.path}/keys", {"name": "tests", "scopes": ["infer"]})
        wait_until(lambda: self.door.status(key["secret"]) == 200, f"the key\n{self.door.fleet.said()}")
        return key

    def revoke(self) -> None:
        self.door.fleet.ask("DELETE", f"{self.path}/keys/{self.key['id']}")

    def suspend(self) -> None:
        self.door.fleet.ask("PATCH", self.path, {"state": "suspended"})


@contextmanager
def served(door: FrontDoor, secret: str) -> Iterator[Asking]:
    """One request after the other, and an answer to each so far."""
    with asking(lambda: door.status(secret)) as found:
        found.answered()
        yield found


@pytest.mark.parametrize(
    ("slug", "deed", "status"), [("hooli", Customer.revoke, 401), ("initech", Customer.suspend, 403)]
)
def test_who_may_not_any_more_is_told_by_a_message_to_the_gateway_and_never_answered_again(
    door: FrontDoor, slug: str, deed: Callable[[Customer], None], status: int
) -> None:
    customer = Customer(door, slug)
    wait_until(lambda: door.agent("gateway-1")["in_sync"], "the gateway to have said that it knows the key")
    with served(door, customer.key["secret"]) as found:
        messages = commands(door)
        deed(customer)
        told_at = time.time()
        first = found.refused(status)
    print(f"refused with {status} {max(0.0, first.ended - told_at):.3f} s after the API's answer")
    wait_until(lambda: commands(door) > messages, "the message that said so")
    assert door.status() == 200  # others are served


def commands(door: FrontDoor) -> float:
    """That came to the gateway through the broker."""
    return sample(door.url, "luminet_sidecar_commands_total")


def test_a_key_that_expires_is_refused_by_the_gateways_own_clock_while_nobody_tells_it_anything(
    door: FrontDoor,
) -> None:
    secret, expires_at = expiring_key(door, Customer(door, "umbrella"))
    with silence(door), served(door, secret) as found:
        heard = sample(door.url, "luminet_sidecar_generation"), commands(door)
        first = found.refused(401)
        assert (sample(door.url, "luminet_sidecar_generation"), commands(door)) == heard
    assert abs(first.ended - expires_at) < CLOCK_SECONDS
    assert all(one.began < expires_at + CLOCK_SECONDS for one in found.seen if one.status == 200)


def expiring_key(door: FrontDoor, customer: Customer) -> tuple[str, float]:
    """One that is good at the gateway for at least half its time, and when it expires."""
    for seconds in (8, 16, 32, 64):  # the slower the machine, the longer
        expires_at = round(time.time()) + seconds
        expiry = datetime.fromtimestamp(expires_at, UTC).isoformat()
        body = {"name": "tests", "scopes": ["infer"], "expires_at": expiry}
        secret = str(door.fleet.ask("POST", f"{customer.path}/keys", body)["secret"])
        while time.time() < expires_at - seconds / 2:
            if door.status(secret) == 200:
                return secret, expires_at
            time.sleep(0.05)
    raise AssertionError(f"no key was known in time\n{door.fleet.said()}")


@contextmanager
def silence(door: FrontDoor) -> Iterator[None]:
    """The control plane's processes stand still: no message is sent and none of their answers comes."""
    parts = [door.fleet.parts[name] for name in ("web", "worker")]
    for part in parts:
        part.pause()
    try:
        yield
    finally:
        for part in parts:
            part.resume()


def test_where_the_message_is_lost_who_was_suspended_is_refused_all_the_same(door: FrontDoor) -> None:
    customer = Customer(door, "stark")
    wait_until(lambda: door.agent("gateway-1")["in_sync"], "the gateway to have said that it knows the key")
    with served(door, customer.key["secret"]) as found:
        door.part.pause()
        try:
            wait_until(lambda: not listening(door), "nobody to wait at the gateway's queue")
            customer.suspend()
            dropped = wait_until(lambda: drop(door), "the message on its way")
        finally:
            door.part.resume()
        found.refused(403)
    assert dropped
    wait_until(lambda: door.agent("gateway-1")["in_sync"], "the gateway to hold what it is to hold")


def listening(door: FrontDoor) -> bool:
    """Whether the broker would hand the gateway a message at once. One that stands still asks for no other."""
    with door.fleet.broker() as broker:
        clients = broker.client_list()
    return any(one["user"].startswith("agent.gateway-1.") and "b" in one["flags"] for one in clients)


def drop(door: FrontDoor) -> list[bytes]:
    """What lay in the gateway's queue, and does no more."""
    with door.fleet.broker() as broker:
        found: list[bytes] = broker.lpop(QUEUE, 100) or []
    return found


def test_a_published_ttl_is_what_requests_meet_at_both_engines(door: FrontDoor) -> None:
    path = "/orgs/acme/namespaces/default/policy"
    revision = str(door.fleet.ask("PUT", path, {"policy": {"ttl_seconds": 1}})["revision"])
    wait_until(
        lambda: door.seen("x-luminet-policy-revision") == {revision}, f"revision {revision}\n{door.fleet.said()}"
    )
    assert door.seen("x-luminet-agent") == set(AGENTS)


def test_a_gateway_goes_on_without_the_control_plane_also_after_a_restart(door: FrontDoor) -> None:
    web = door.fleet.parts["web"]
    web.kill()
    try:
        assert door.seen("x-luminet-agent") == set(AGENTS)
        door.part.kill()
        assert door.status() == 0
        door.part.start()
        wait_until(lambda: door.status() == 200, f"the gateway\n{door.part.said}")
        assert not web.is_running
    finally:
        web.start()
    key = door.new_key()
    wait_until(lambda: door.status(key["secret"]) == 200, f"a key made after it came back\n{door.fleet.said()}")


def test_an_agent_that_is_drained_gets_no_more_until_it_is_resumed(door: FrontDoor) -> None:
    wait_until(lambda: door.seen("x-luminet-agent") == set(AGENTS), "both")
    door.fleet.ask("POST", "/fleet/agents/agent-1/drain")
    wait_until(lambda: door.seen("x-luminet-agent") == {"agent-2"}, "the drain")
    assert door.seen("x-luminet-agent") == {"agent-2"}
    door.fleet.ask("POST", "/fleet/agents/agent-1/resume")
    wait_until(lambda: door.seen("x-luminet-agent") == set(AGENTS), f"agent-1\n{door.fleet.said()}")


def test_an_agent_that_is_killed_costs_nobody_an_answer(door: FrontDoor) -> None:
    wait_until(lambda: door.seen("x-luminet-agent") == set(AGENTS), "both")
    victim = next(one for one in door.fleet.agents if one.name == "agent-2")
    victim.kill()
    assert [door.status() for _ in range(6)] == [200] * 6
    victim.start()
    wait_until(lambda: door.seen("x-luminet-agent") == set(AGENTS), f"agent-2\n{door.fleet.said()}")


def test_a_format_without_a_passing_result_is_refused_at_the_door(door: FrontDoor) -> None:
    answer = door.complete(kv_cache_dtype="int4")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "kv_cache_dtype"
    assert "bf16" in answer.json()["error"]["message"]


def test_no_secret_of_the_fleet_is_in_a_log(door: FrontDoor) -> None:
    credentials = json.loads((door.fleet.config.home / "gateway-1" / "credentials").read_text())
    secrets = [credentials["token"], credentials["keys"]["check"], credentials["keys"]["sealing"], door.key["secret"]]
    said = door.fleet.said() + door.fleet.agents_said()
    assert [secret for secret in secrets if secret in said] == []
