"""Streams that say next to nothing are held, cost nobody else anything, and leave nothing when they are over."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import pytest

from engine_agent.process.commands import loop_factory
from tests.engines.processes import state_folder
from tests.gateway.idle_streams import Streams, files_short_of, open_streams
from tests.gateway.levels import Levels, faults, levels
from tests.gateway.snapshots import gateway_snapshot, route, tenants
from tests.gateway.stand_in import Running, stand_in
from tests.integration.test_gateway_process import Process, complete, gateway, joined_before
from tests.support.waiting import wait_until

STREAMS = 500
SECONDS = 2.0  # between two tokens of a stream
IDLE_TASKS = 8


@dataclass(frozen=True, slots=True)
class Door:
    gateway: Process
    engine: Running

    @property
    def port(self) -> int:
        return urlsplit(self.gateway.url).port or 0


@dataclass(frozen=True, slots=True)
class Seen:
    streams: Streams
    amid: Levels
    broken: int
    at_engine: int
    answer: int  # of an ordinary request meanwhile


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    if why := files_short_of(STREAMS):
        pytest.skip(why)
    with stand_in(seconds=SECONDS) as engine, state_folder() as home:
        home.mkdir()
        joined_before(home, gateway_snapshot(tenants(), route("agent-1", engine.url)))
        with gateway("--home", str(home), "--canary-seconds", "0") as running:
            wait_until(lambda: httpx.get(f"{running.url}/health").json().get("reachable") == 1)
            yield Door(running, engine)


async def _held(door: Door) -> Seen:
    async with open_streams(door.port, STREAMS) as streams:
        amid = await asyncio.to_thread(levels, door.gateway.url)
        answer = await asyncio.to_thread(complete, door.gateway.url)
        await streams.until_all_have(3)
        at_engine = (await asyncio.to_thread(lambda: door.engine.state)).running
        return Seen(streams, amid, streams.broken, at_engine, answer.status_code)


def test_five_hundred_streams_are_held_and_nothing_is_left_of_them(door: Door) -> None:
    before = levels(door.gateway.url)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        seen = runner.run(_held(door))
    assert (seen.broken, seen.at_engine, seen.answer) == (0, STREAMS, 200)
    assert min(one.tokens for one in seen.streams.every) >= 3
    assert (seen.amid.connections, seen.amid.running) == (STREAMS, STREAMS)
    wait_until(lambda: door.engine.state.running == 0)
    assert door.engine.state.left == STREAMS
    wait_until(lambda: _is_over(levels(door.gateway.url), before))
    assert faults(door.gateway.logged) == []


def _is_over(now: Levels, before: Levels) -> bool:
    return now.connections == now.body_bytes == now.running == 0 and now.tasks <= before.tasks + IDLE_TASKS
