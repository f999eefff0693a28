"""A gateway process in front of a real engine, under all bad requests at once and with slow clients beside them."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from tests.engines.processes import state_folder
from tests.gateway.bad_clients import Lingered, Run, linger, send_all, unread
from tests.gateway.bad_requests import GOOD, head, request
from tests.gateway.levels import Levels, levels
from tests.gateway.snapshots import KEY, engine_snapshot, gateway_snapshot, route, tenants
from tests.gateway.stand_in import HASTY, stand_in
from tests.integration.gateway_fleet import fleet_engine, told_as
from tests.integration.test_gateway_process import Process, complete, gateway, joined_before
from tests.support.waiting import wait_until

ANOTHER = "stand-in"  # the model whose answers are long enough to be left unread
OF_EACH = 8  # slow clients
IDLE_TASKS = 8  # that come and go by themselves, such as looks at engines
SETTLED_SECONDS = 120
DRIPPED_HEAD = b"POST /v1/completions HTTP/1.1\r\nx-slow: "
DRIPPED_BODY = head("POST", "/v1/completions", {"authorization": f"Bearer {KEY}", "content-length": "9000"}) + b"{"
UNREAD = request(json.dumps({**GOOD, "model": ANOTHER, "stream": True, "user": HASTY}).encode())


@dataclass(frozen=True, slots=True)
class Aftermath:
    run: Run
    silent: Sequence[Lingered]
    heads: Sequence[Lingered]
    bodies: Sequence[Lingered]
    before: Levels
    amid: Levels  # while slow clients were there and everybody else was not
    after: Levels


@contextmanager
def fleet() -> Iterator[Process]:
    """Ready: the gateway has heard of all that its engines hold."""
    with fleet_engine("agent-1") as engine, stand_in() as other, state_folder() as home:
        assert engine.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
        home.mkdir()
        routes = route("agent-1", f"http://127.0.0.1:{engine.port}"), route("agent-2", other.url, models=(ANOTHER,))
        joined_before(home, gateway_snapshot(tenants(), *routes))
        with gateway("--home", str(home), "--canary-seconds", "0") as running:
            wait_until(lambda: httpx.get(f"{running.url}/health").json().get("reachable") == 2)
            assert complete(running.url).status_code == 200
            yield running


def suffered(running: Process, count: int, *, seed: int) -> Aftermath:
    before = levels(running.url)
    run, silent, heads, bodies, amid = asyncio.run(_suffered(running, count, seed))
    wait_until(lambda: _is_settled(levels(running.url), before), seconds=SETTLED_SECONDS)
    return Aftermath(run, silent, heads, bodies, before, amid, levels(running.url))


async def _suffered(
    running: Process, count: int, seed: int
) -> tuple[Run, Sequence[Lingered], Sequence[Lingered], Sequence[Lingered], Levels]:
    port, enough = urlsplit(running.url).port or 0, asyncio.Event()
    silent, heads, bodies = (
        [asyncio.create_task(linger(port, begin, enough, drip=drip)) for _ in range(OF_EACH)]
        for begin, drip in ((b"", b""), (DRIPPED_HEAD, b"x"), (DRIPPED_BODY, b" "))
    )
    deaf = [asyncio.create_task(unread(port, UNREAD, enough)) for _ in range(OF_EACH)]
    run, amid = await asyncio.gather(
        send_all(port, count, seed=seed), asyncio.to_thread(_once_slow_clients_are_there, running.url)
    )
    await asyncio.wait([*silent, *heads, *bodies], timeout=SETTLED_SECONDS)
    await asyncio.to_thread(wait_until, lambda: levels(running.url).connections == 0, seconds=SETTLED_SECONDS)
    enough.set()
    await asyncio.gather(*deaf)
    return run, await asyncio.gather(*silent), await asyncio.gather(*heads), await asyncio.gather(*bodies), amid


def _once_slow_clients_are_there(url: str) -> Levels:
    """Their bodies are given up after 10 s, however long the rest takes."""
    seen: list[Levels] = []

    def are_there() -> bool:
        seen.append(levels(url))
        return seen[-1].connections >= 3 * OF_EACH and seen[-1].body_bytes > 0

    wait_until(are_there, seconds=SETTLED_SECONDS)
    return seen[-1]


def _is_settled(now: Levels, before: Levels) -> bool:
    is_over = now.connections == now.body_bytes == now.running == 0
    return is_over and now.tasks <= before.tasks + IDLE_TASKS
