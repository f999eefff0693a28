"""All cases through a proxy, and what must not come of any of them, whichever proxy it is.

A proxy may refuse what a server would take, and may put right what a server would refuse. It may not pass on a request
that nobody sent, or let a client say who it is.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.edge.cases import ENCODINGS, GROUPS, LENGTHS, REFUSED, TAKEN, TIME, Case, Expected, Server
from tests.edge.exchange import Outcome, connected
from tests.edge.servers import Running
from tests.edge.steps import RESET
from tests.edge.taps import Seen, Tap
from tests.servers.proxies import ProxyName

TOGETHER = 24
NEAR = "127.0.0.1"  # where all clients of these tests are
AMBIGUOUS = frozenset(case.name for group in (LENGTHS, ENCODINGS) for case in group.cases if case.expected == REFUSED)

CASES = tuple(case for group in GROUPS if group is not TIME for case in group.cases)  # a proxy has deadlines of its own


@dataclass(frozen=True, slots=True)
class Proxied:
    """A server behind a proxy, with a tap between the two."""

    proxy: ProxyName
    running: Running
    port: int  # of the proxy
    host: bytes  # by which the proxy knows the server
    taps: Sequence[Tap]

    def seen(self, case: str = "") -> list[Seen]:
        """Of one case, or of all; not what the proxy itself asks to know whether the server is well."""
        found = [seen for tap in self.taps for seen in tap.seen if "?case=" in seen.target]
        mark = f"?case={self.running.server}.{case}"
        return [seen for seen in found if not case or seen.target.partition("#")[0].endswith(mark)]


def requests_sent(case: Case) -> int:
    """How many requests a client meant that asks once more at the end."""
    data = b"".join(step for step in case.steps if isinstance(step, bytes))
    return max(1, len(case.expected.statuses)) + data.count(b"<second>") + 1


def objections(
    case: Case, expected: Expected, outcome: Outcome, seen: Sequence[Seen], proxy: ProxyName
) -> Iterator[str]:
    for request in seen:  # what a proxy does not know of has not been marked by it
        yield from forged(request)
    if proxy not in case.by_proxy:
        yield from _not_as_sent(case, outcome.statuses, seen)
    yield from _not_as_served(expected, outcome.statuses)


def _not_as_sent(case: Case, statuses: Sequence[int], seen: Sequence[Seen]) -> Iterator[str]:
    most = requests_sent(case)
    if any(request.target.startswith("/smuggled") for request in seen):
        yield "the server saw a request that was hidden in another"
    if len(statuses) > most or len(seen) > most:
        yield f"{len(statuses)} answers and {len(seen)} requests at the server to at most {most} requests"
    if case.name in AMBIGUOUS and statuses and statuses[0] < 400:
        yield f"its framing is ambiguous, and it was answered {statuses}"


def _not_as_served(expected: Expected, statuses: Sequence[int]) -> Iterator[str]:
    """By the server alone."""
    if expected.statuses[:1] in ((401,), (404,), (405,)) and statuses and statuses[0] < 400:
        yield f"answered {statuses}, though the server alone answers {expected.statuses}"
    if expected.statuses[:1] in ((200,), (TAKEN,)) and any(status >= 500 for status in statuses):
        yield f"answered {statuses}"


def forged(request: Seen) -> Iterator[str]:
    """What of a request's head is the client's and should be the proxy's."""
    for name, values in (("x-forwarded-for", [NEAR]), ("forwarded", [])):
        if request.values(name) != values:
            yield f"the server saw {name}: {request.values(name)}"
    if len(request.values("host")) > 1:
        yield f"the server saw the hosts {request.values('host')}"
    framings = [*request.values("content-length"), *request.values("transfer-encoding")]
    if len(framings) > 1 or any(value.lower() != "chunked" for value in request.values("transfer-encoding")):
        yield f"the server saw the framings {framings}"


def complaints_by_server(proxied: Mapping[Server, Proxied]) -> dict[Server, list[str]]:
    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*map(_complaints, proxied.values()))

    return dict(zip(proxied, asyncio.run(all_of_them()), strict=True))


async def _complaints(proxied: Proxied) -> list[str]:
    places = asyncio.Semaphore(TOGETHER)

    async def in_turn(case: Case) -> list[str]:
        async with places:
            return [f"{case.name}: {objection}" for objection in await _objections(proxied, case)]

    found = await asyncio.gather(*map(in_turn, CASES))
    return [*itertools.chain(*found), *(f"log: {line[:500]}" for line in proxied.running.faults())]


async def _objections(proxied: Proxied, case: Case) -> list[str]:
    values = proxied.running.values(case.name, host=proxied.host)
    async with connected((NEAR, proxied.port), values, is_head=case.is_head) as client:
        try:
            outcome = await client.through_proxy(case.steps)
        except TimeoutError:
            return ["the connection was left open"]
    if RESET in case.steps:
        return []
    expected = case.expected_of(proxied.running.server)
    return list(objections(case, expected, outcome, proxied.seen(case.name), proxied.proxy))
