"""G4's streams: so many at once through one gateway process, to an engine that has a token for each now and then."""

import asyncio
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from engine_agent.process.commands import loop_factory
from tests.bench.figures import Target
from tests.bench.measuring import Bench
from tests.engines.processes import state_folder
from tests.gateway.idle_streams import files_short_of, open_streams
from tests.gateway.levels import Levels, faults, levels
from tests.gateway.snapshots import gateway_snapshot, route, tenants
from tests.gateway.stand_in import Running, stand_in
from tests.integration.test_gateway_process import Process, complete, gateway, joined_before

STREAMS, BETWEEN_SECONDS, TOKENS = 2_000, 10.0, 4
REQUESTS = 50
IDLE_TASKS = 8
OVER_SECONDS = 120.0
OPTIONS = ("--canary-seconds", "0", "--drain-seconds", "0")


@dataclass(frozen=True, slots=True)
class Found:
    broken: int
    gained_bytes: int
    beside: list[float]  # milliseconds of an ordinary request


def gateway_streams(bench: Bench) -> None:
    if why := files_short_of(STREAMS):
        bench.note(f"streams were not measured: {why}")
        return
    with stand_in(seconds=BETWEEN_SECONDS) as engine, state_folder() as home:
        home.mkdir()
        joined_before(home, gateway_snapshot(tenants(), route("agent-1", engine.url)))
        with gateway("--home", str(home), *OPTIONS) as running:
            alone, before = [_asked(running) for _ in range(REQUESTS)], levels(running.url)
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                found = runner.run(_held(running))
            left = _left(running, engine, before)
            mistakes = faults(running.logged)
    sizes = {"streams": STREAMS, "seconds between tokens": BETWEEN_SECONDS, "tokens of each": TOKENS}
    bench.record("idle streams broken", unit="", values=[found.broken], target=Target("==", 0), parameters=sizes)
    bench.record("memory of a stream", unit="KB", values=[found.gained_bytes / STREAMS / 1e3])
    bench.record("an ordinary request, nothing beside it", unit="ms", values=alone)
    bench.record("an ordinary request beside the streams", unit="ms", values=found.beside)
    bench.record("left when their clients had left", unit="", values=[left], target=Target("==", 0))
    bench.record("mistakes in its log", unit="", values=[len(mistakes)], target=Target("==", 0))


async def _held(running: Process) -> Found:
    process = psutil.Process(running.process.pid)
    before = process.memory_info().rss
    async with open_streams(urlsplit(running.url).port or 0, STREAMS) as streams:
        gained = process.memory_info().rss - before
        beside = await asyncio.to_thread(lambda: [_asked(running) for _ in range(REQUESTS)])
        await streams.until_all_have(TOKENS)
        return Found(streams.broken, gained, beside)


def _asked(running: Process) -> float:
    began = time.perf_counter()
    assert complete(running.url).status_code == 200
    return 1e3 * (time.perf_counter() - began)


def _left(running: Process, engine: Running, before: Levels) -> int:
    """Of connections, requests, tasks and the engine's own requests; as few as they become."""

    def now() -> int:
        held = levels(running.url)
        tasks = max(0, held.tasks - before.tasks - IDLE_TASKS)
        return held.connections + held.body_bytes + held.running + tasks + engine.state.running

    ends_at = time.monotonic() + OVER_SECONDS
    while (left := now()) and time.monotonic() < ends_at:
        time.sleep(0.1)
    return left
