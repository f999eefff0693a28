"""Whatever reaches the control plane's port, it makes no mistake of its own, tells nothing of its insides, and goes on.

As HTTP, as live sockets, at the door of agents; and an agent does so with whatever lies in its queue.
"""

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import pytest

from engine_agent.contracts.protocol import queue_name
from tests.database.factories import PASSWORD
from tests.fleet.fleets import Fleet, fleet_running, static_files_collect
from tests.soaking.memory import MOST_PEAK_SHARE, compose_limit_mb, peak_mb, resident_mb
from tests.support.spoiling import hit, spoiled
from tests.support.waiting import wait_until
from tests.web.bad_bodies import odd_value
from tests.web.random_input import PATIENCE_SECONDS, Sent, agent_case, complaints, frame, head, http_case, socket_case

SEED = 12
OPERATOR = "operator@luminet.example"
GARBAGE = 4  # a worker that stumbles begins anew after a while, longer each time
CASES = {"http": 600, "sockets": 150, "agents": 600}
HUGE_HEADS, HUGE_BYTES = 24, 8 << 20
LARGE_BODIES = (1 << 20, 4 << 20, 15 << 20)
RESETS, LONG_HEAD_BYTES = 400, 60_000  # together 24 MB of heads, and as much again for parsers
KEPT_MB = 24  # by pools and caches that fill meanwhile
JOIN = {"kind": "engine", "name": None, "about": {"backend": "simulated", "version": "0.1.0"}}


@dataclass(frozen=True, slots=True)
class World:
    fleet: Fleet
    cookie: str  # of an operator who is signed in
    token: str  # of an agent

    @property
    def port(self) -> int:
        return int(urlsplit(self.fleet.web).port or 0)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    def sent(self, *cases: Sent) -> Mapping[int, int]:
        """How often which status came back. Nothing else may have."""
        web = self.fleet.parts["web"]
        before, said = web.pid, len(web.said)
        found, statuses = asyncio.run(complaints(self.port, cases))
        assert found == [], f"seed {SEED}:\n" + errors(web.said[said:])
        assert httpx.get(f"{self.fleet.web}/healthz").status_code == 200
        assert web.pid == before, "the web has ended, and was started again"
        assert errors(web.said[said:]) == ""
        return statuses


def errors(said: str) -> str:
    return "\n".join(line for line in said.splitlines() if '"level": "error"' in line)[:8_000]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with fleet_running() as fleet:
        fleet.ask("POST", "/orgs", {"slug": "acme", "name": "Acme"})
        told = httpx.post(f"{fleet.web}/agent/v1/enrol", json={**JOIN, "token": fleet.tokens["join"]}).json()
        yield World(fleet, signed_in(fleet), told["token"])


def signed_in(fleet: Fleet) -> str:
    """As an operator; with the static files that pages name, which a fleet has no use for."""
    static_files_collect(fleet)
    fleet.parts["web"].stop()
    fleet.parts["web"].start()
    with httpx.Client(base_url=fleet.web) as client:
        assert client.get("/sign-in").status_code == 200
        form = {"csrfmiddlewaretoken": client.cookies["luminet_csrf"], "email": OPERATOR, "password": PASSWORD}
        assert client.post("/sign-in", data=form).status_code == 302
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def test_the_same_seed_sends_the_same() -> None:
    assert [http_case(one, seed=1, cookie="") for one in range(40)] == [
        http_case(one, seed=1, cookie="") for one in range(40)
    ]
    assert socket_case(1, seed=1, cookie="", origin="") != socket_case(1, seed=2, cookie="", origin="")


def test_bytes_that_are_nearly_http(world: World) -> None:
    cases = [http_case(number, seed=SEED, cookie=world.cookie) for number in range(CASES["http"])]
    assert {200, 400, 401, 403, 404, 405} <= set(world.sent(*cases))


def test_live_sockets_that_make_no_sense(world: World) -> None:
    cookie, origin = world.cookie, world.fleet.web
    cases = [socket_case(number, seed=SEED, cookie=cookie, origin=origin) for number in range(CASES["sockets"])]
    assert {101, 400} <= set(world.sent(*cases))


def handshake(world: World, origin: str | None) -> bytes:
    told = {"upgrade": "websocket", "connection": "Upgrade", "cookie": world.cookie}
    told |= {"sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    return head("GET", "/ws/live/fleet", told if origin is None else {**told, "origin": origin})


def test_live_sockets_compare_the_whole_origin(world: World) -> None:
    web = urlsplit(world.fleet.web)
    ours = [world.fleet.web, f"http://localhost:{web.port}", f"http://[::1]:{web.port}"]
    others: list[str | None] = [
        f"http://{web.hostname}:{(web.port or 0) + 1}",
        f"http://{web.hostname}",
        f"https://{web.hostname}:{web.port}",
        f"http://luminet.localhost:{web.port}",
        f"http://localhost.evil.example:{web.port}",
        f"http://{web.hostname}:{web.port}.evil.example",
        f"{world.fleet.web}/",
        f"{web.hostname}:{web.port}",
        "http://[",
        "http://localhost:99999",
        "null",
        "",
        None,
    ]
    for sent in ours:
        assert world.sent(Sent(sent, [handshake(world, sent)], "is let in and says no more")) == {101: 1}
    for other in others:
        assert world.sent(Sent(str(other), [handshake(world, other)], "listens")) == {403: 1}, other


def test_a_page_that_sends_more_than_pages_do_is_cut_off(world: World) -> None:
    """A page only listens: what it sends is held in memory until it is whole."""
    start = handshake(world, world.fleet.web)
    assert world.sent(Sent("much", [start, frame(bytes(2**20))], "is let in and says no more")) == {101: 1}


def test_what_agents_say_spoiled(world: World) -> None:
    join = world.fleet.tokens["join"]
    cases = [agent_case(number, seed=SEED, token=world.token, join=join) for number in range(CASES["agents"])]
    assert {200, 400, 401, 404, 405} <= set(world.sent(*cases))
    assert world.fleet.value("SELECT sum(requests) FROM analytics_minute") > 0, "some was good enough to be counted"
    part = world.fleet.simulate(1, prefix="good")  # and who makes sense is served as ever
    wait_until(lambda: is_in_sync(world.fleet, "good-0001"), "an agent in sync after all that")
    part.stop()


def is_in_sync(fleet: Fleet, agent: str) -> bool:
    found = fleet.rows(
        "SELECT desired_hash <> '' AND applied_hash = desired_hash FROM fleet_agent WHERE id = %s", agent
    )
    return bool(found and found[0][0])


# Its memory, after all that


def most_mb() -> float:
    return MOST_PEAK_SHARE * compose_limit_mb("web")


def test_huge_heads_and_bodies_stay_within_the_memory_limit(world: World) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(HUGE_HEADS):
            near = opened.enter_context(contextlib.closing(world.connected()))
            with contextlib.suppress(OSError):  # refused before all of it is sent
                near.sendall(b"GET /healthz HTTP/1.1\r\nx: " + bytes(HUGE_BYTES))
    for size in LARGE_BODIES:
        for token in (world.token, "nobody"):
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            with contextlib.suppress(httpx.TransportError):
                content = b"[" + b"1," * (size // 2) + b"1]"
                httpx.post(f"{world.fleet.web}/agent/v1/reports", content=content, headers=headers, timeout=60)
    assert httpx.get(f"{world.fleet.web}/healthz", timeout=60).status_code == 200
    assert peak_mb(world.fleet.parts["web"]) < most_mb()


def test_reset_connections_leave_no_memory_behind(world: World) -> None:
    web = world.fleet.parts["web"]
    before = resident_mb(web)
    for _ in range(RESETS):
        with world.connected() as near:
            near.sendall(head("GET", "/healthz", {"x": "x" * LONG_HEAD_BYTES}))
            assert near.recv(12) == b"HTTP/1.1 200"
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: resident_mb(web) < before + KEPT_MB, "the memory of connections that are gone")


def test_what_lies_in_an_agents_queue_and_is_no_command(world: World) -> None:
    """Whoever could write there, by the broker's own password: the agent goes on, and obeys nothing of it."""
    fleet, chance = world.fleet, random.Random(SEED)
    part = fleet.simulate(1, prefix="queue")
    wait_until(lambda: is_in_sync(fleet, "queue-0001"), "an agent in sync")
    key = f"agent.queue-0001:{queue_name('queue-0001')}"
    pid = part.pid
    with fleet.broker() as broker:
        part.pause()
        fleet.ask("PUT", "/policy", {"policy": {"ttl_seconds": 777}})
        message = wait_until(lambda: broker.lindex(key, 0), "a command on its way")
        part.resume()
        for number in range(GARBAGE):
            broker.lpush(key, garbage(chance, number, bytes(message)))
        wait_until(lambda: not broker.llen(key), "all of it to be taken")
    fleet.ask("PUT", "/policy", {"policy": {"ttl_seconds": 778}})
    wait_until(lambda: is_in_sync(fleet, "queue-0001"), "the agent at what the control plane says")
    assert (part.is_running, part.pid) == (True, pid)


def garbage(chance: random.Random, number: int, message: bytes) -> bytes:
    match number % 4:
        case 0:
            return hit(chance, message)
        case 1:
            return json.dumps(spoiled(chance, json.loads(message))).encode()
        case 2:
            return json.dumps(odd_value(chance, depth=3)).encode()
        case _:
            return chance.randbytes(200)
