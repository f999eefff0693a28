"""Send a workload: at fixed moments, or a fixed number at a time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import aiohttp

from engine_agent.tools.loadgen.asking import ask
from engine_agent.tools.loadgen.outcome import Outcome
from engine_agent.tools.loadgen.server import Server
from engine_agent.tools.loadgen.workloads import Asked

OnAnswer = Callable[[int], None]  # called with the number of answered requests


def nobody_counts(answered: int) -> None:
    """Ignore the progress."""


async def send_at(
    opened: aiohttp.ClientSession,
    server: Server,
    workload: Sequence[Asked],
    *,
    speed: float = 1.0,
    on_answer: OnAnswer = nobody_counts,
) -> list[Outcome]:
    """Send each request at its `at_seconds`, `speed` times as fast, whether or not earlier ones are answered."""
    began = time.perf_counter()
    count = _Count(on_answer)

    async def send(request: Asked) -> Outcome:
        due = began + (request.at_seconds or 0.0) / speed
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        return count.one_more(await ask(opened, server, request, began=began, due=due))

    return list(await asyncio.gather(*(send(request) for request in workload)))


async def send_together(
    opened: aiohttp.ClientSession,
    server: Server,
    workload: Sequence[Asked],
    *,
    concurrency: int,
    on_answer: OnAnswer = nobody_counts,
) -> list[Outcome]:
    """Send `concurrency` requests at a time, the next after each answer. Outcomes are in the workload's order."""
    began = time.perf_counter()
    count = _Count(on_answer)
    remaining = iter(enumerate(workload))
    outcomes: dict[int, Outcome] = {}

    async def send_on() -> None:
        for number, request in remaining:
            outcomes[number] = count.one_more(await ask(opened, server, request, began=began))

    await asyncio.gather(*(send_on() for _ in range(min(concurrency, len(workload)))))
    return [outcomes[number] for number in range(len(workload))]


def timed(workload: Sequence[Asked], moments: Sequence[float]) -> list[Asked]:
    """Return the same requests at these moments."""
    return [replace(request, at_seconds=at) for request, at in zip(workload, moments, strict=True)]


class _Count:
    def __init__(self, on_answer: OnAnswer) -> None:
        self._on_answer, self._answered = on_answer, 0

    def one_more(self, outcome: Outcome) -> Outcome:
        self._answered += 1
        self._on_answer(self._answered)
        return outcome
