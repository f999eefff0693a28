"""All cases against one server at once, and what came out otherwise than it should."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.edge.cases import ANY, TAKEN, Case, Expected, Server
from tests.edge.exchange import PROBE, Outcome, exchange
from tests.edge.servers import Running

TOGETHER = 24
GONE_SECONDS = 60.0


def objections(expected: Expected, outcome: Outcome, *, taken: int) -> list[str]:
    """How an outcome differs from what is expected."""
    statuses = tuple(taken if status == TAKEN else status for status in expected.statuses)
    found = []
    if outcome.statuses not in (statuses, *expected.also):
        found.append(f"answered {outcome.statuses}, expected {statuses}")
    if outcome.end != expected.end:
        found.append(f"the connection {outcome.end}, expected {expected.end}")
    if expected.interim not in (outcome.interim, ANY):
        found.append(f"{outcome.interim} times 100 Continue, expected {expected.interim}")
    if outcome.problem:
        found.append(outcome.problem)
    return found


@dataclass(slots=True)
class Suite:
    running: Running
    complaints: list[str]
    ports: dict[int, str]  # of clients, and which case was theirs

    async def all(self, cases: Sequence[Case]) -> None:
        places = asyncio.Semaphore(TOGETHER)

        async def in_turn(case: Case) -> None:
            async with places:
                await self._one(case, case.expected_of(self.running.server))

        await asyncio.gather(*map(in_turn, cases))
        await self._gone()

    async def _one(self, case: Case, expected: Expected) -> None:
        running, values = self.running, self.running.values(case.name)
        outcome = await exchange(
            running.address, case.steps, expected.end, values, count=len(expected.statuses), is_head=case.is_head
        )
        self.ports[outcome.port] = case.name
        self.complaints += [f"{case.name}: {one}" for one in objections(expected, outcome, taken=running.taken)]
        after = await exchange(running.address, (PROBE,), "closes", values)
        if after.statuses != (200,):
            self.complaints.append(f"{case.name}: afterwards it answered {after.statuses}")

    async def _gone(self) -> None:
        """No connection of any case is held once its client has left."""
        ends_at = asyncio.get_running_loop().time() + GONE_SECONDS
        while held := self.running.client_ports() & set(self.ports):
            if asyncio.get_running_loop().time() > ends_at:
                self.complaints += [f"{self.ports[port]}: its connection is still held" for port in held]
                return
            await asyncio.sleep(0.05)


def complaints_by_server(servers: Iterable[Running], cases: Sequence[Case]) -> dict[Server, list[str]]:
    suites = [Suite(running, [], {}) for running in servers]

    async def all_of_them() -> None:
        await asyncio.gather(*(suite.all(cases) for suite in suites))

    asyncio.run(all_of_them())
    return {
        suite.running.server: [*suite.complaints, *(f"log: {line[:500]}" for line in suite.running.faults())]
        for suite in suites
    }
