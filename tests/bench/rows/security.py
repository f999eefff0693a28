"""S2: random requests to every operation of the REST API, as every kind of caller, against a running stack; and to a
gateway, which has a module of its own.
"""

import http.client
import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.bench import Bench, Target, row
from tests.bench.gateway_input import random_input_at_gateway
from tests.bench.stacks import Stack, fresh_home, stack_running, web_running
from tests.web.random_requests import Answered, Sent, World, complaints, drawn, targets, world_make
from tests.web.random_requests import Target as Operation

CASES_OF_EACH_OPERATION = 90
MOST_WORLDS = 10  # for one operation: those that delete need another each time
TIMEOUT_SECONDS = 30
# Half of them may do everything; the others must not be able to break anything either.
CALLERS = (
    *("operator", "key with every scope", "operator", "key bound to a namespace", "operator", "key, policy:read only"),
    *("operator", "key with every scope", "operator", "operator, reading only", "operator", "key, infer only"),
    *("operator", "key with every scope", "operator", "key of a suspended organisation", "operator", "nobody"),
    *("operator", "garbage"),
)


@row(
    "S2",
    title="Random API input (schemathesis, all operations); random bodies, heads and half requests at a gateway",
    target="0 server errors in ≥ 5,000 · ≥ 20,000 requests",
)
def random_input(bench: Bench) -> None:
    _random_input_at_api(bench)
    random_input_at_gateway(bench)


def _random_input_at_api(bench: Bench) -> None:
    seed = secrets.randbelow(2**32)
    with (
        fresh_home() as config,
        stack_running(config) as stack,
        web_running(stack, LUMINET_API_REQUESTS_PER_MINUTE="1000000") as web,
    ):
        began = time.perf_counter()
        run = Run(Wire(web.address), _token(stack), seed, bench.repetitions(CASES_OF_EACH_OPERATION))
        for operation in targets():
            run.try_out(operation)
        seconds = time.perf_counter() - began
    statuses = {str(status): count for status, count in sorted(run.statuses.items())}
    parameters = {"seed": seed, "operations": len(targets()), "callers": len(set(CALLERS)), **statuses}
    bench.record(
        "random requests", unit="", values=[run.statuses.total()], target=Target(">=", 5000), parameters=parameters
    )
    bench.record("server errors", unit="", values=[run.errors], target=Target("==", 0))
    bench.record("answers that are not as described", unit="", values=[len(run.complaints)], target=Target("==", 0))
    bench.record("whole run", unit="s", values=[seconds])
    for complaint in run.complaints[:10]:
        bench.note(complaint)


class Run:
    def __init__(self, wire: "Wire", operator: str, seed: int, cases: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.errors = 0
        self.complaints: list[str] = []
        self._wire, self._operator, self._seed, self._cases = wire, operator, seed, cases
        self._worlds = 0

    def try_out(self, operation: Operation) -> None:
        worlds = self._worlds_for()
        world = next(worlds)
        for number, one in enumerate(drawn(operation.name, self._cases, self._seed)):
            sent = one.sent(world, world.tokens[CALLERS[number % len(CALLERS)]])
            answer = self._wire.send(sent)
            self._note(operation, sent, answer)
            if operation.method == "DELETE" and answer.status < 300:
                world = next(worlds, world)

    def _worlds_for(self) -> Iterator[World]:
        for _ in range(MOST_WORLDS):
            self._worlds += 1
            yield world_make(self._wire.send, self._operator, f"random-{self._worlds}")

    def _note(self, operation: Operation, sent: Sent, answer: Answered) -> None:
        self.statuses[answer.status] += 1
        self.errors += answer.status >= 500
        self.complaints += [f"{operation.name}: {found}; {sent}"[:600] for found in complaints(operation, answer)]


class Wire:
    """One kept-alive connection, opened again where the server has closed it."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=TIMEOUT_SECONDS)

    def send(self, sent: Sent) -> Answered:
        try:
            return self._send(sent)
        except (http.client.RemoteDisconnected, ConnectionError):  # an idle connection may end; a fresh one may not
            self._connection.close()
            return self._send(sent)

    def _send(self, sent: Sent) -> Answered:
        self._connection.request(sent.method, sent.target, sent.body or None, dict(sent.headers))
        answer = self._connection.getresponse()
        body = answer.read()
        return Answered(answer.status, {name.title(): value for name, value in answer.getheaders()}, body)


def _token(stack: Stack) -> str:
    return str(json.loads(stack.config.demo_file.read_text(encoding="utf-8"))["operator"]["token"])
