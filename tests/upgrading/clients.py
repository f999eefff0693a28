"""Customers who ask all the time while a fleet is upgraded under them, and never try again.

Their requests go where a load balancer in front of the gateways would send them: to one address, which the operator
moves. Every answer has to come whole: what is less is a failure, with what it was.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import count
from urllib.parse import urlsplit

from tests.support.waiting import wait_until
from tests.usage.chats import TIMEOUT_SECONDS, Chat, Customer, NotWhole, chats, whole
from tests.usage.recount import AGENT, NAMESPACE, PROMPT, Recount

AT_ONCE = 3
MOST_BEGUN = 24
PAUSE_SECONDS = 0.2  # of each after an answer: engines that do nothing else would slow down what is upgraded
LONG_TOKENS = 600  # some seconds: longer than it takes to tell somebody to stop
REVISION = "x-luminet-policy-revision"


class UnderWay:
    """A long answer whose headers have come. It is read on, whatever happens meanwhile."""

    def __init__(self, chat: Chat, agent: str, connection: HTTPConnection, answer: HTTPResponse) -> None:
        self.chat, self.agent, self._connection, self._answer = chat, agent, connection, answer
        self._body, self._problem = b"", ""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    @property
    def is_over(self) -> bool:
        return not self._reading.is_alive()

    def whole(self) -> None:
        """When it has ended; raises unless as it should."""
        self._reading.join()
        if self._problem:
            raise NotWhole(self._problem)
        whole(self.chat, 200, self._body)

    def _read(self) -> None:
        try:
            self._body = self._answer.read()
        except (OSError, HTTPException) as problem:
            self._problem = repr(problem)
        finally:
            self._connection.close()


@dataclass(slots=True)
class Clients:
    customers: Sequence[Customer]
    model: str
    gateway: str
    recount: Recount = field(default_factory=Recount)
    failures: list[str] = field(default_factory=list)
    revisions: dict[str, set[int]] = field(default_factory=dict)  # by namespace: policies that answers told of
    _begun: list[UnderWay] = field(default_factory=list)  # long ones
    _asking: list[str] = field(default_factory=lambda: [""] * AT_ONCE)  # where each waits
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def answers(self) -> int:
        return len(self.recount.answers)

    def more(self, some: int = 6) -> None:
        """Returns when so many more have been answered, or something went wrong."""
        upto = self.answers + some
        wait_until(lambda: self.answers >= upto or self.failures, f"{some} more answers")

    def move(self, gateway: str) -> None:
        """Returns when nobody waits at the one before any more, as a balancer that lets connections end."""
        with self._lock:
            before, self.gateway = self.gateway, gateway
        wait_until(lambda: before not in self._asking, f"clients to leave {before}")

    def long(self, customer: Customer, seed: int) -> UnderWay:
        """A stream that has begun."""
        (chat,) = chats([customer], 1, seed=seed, manners=["stream"], model=self.model, max_tokens=LONG_TOKENS)
        connection = HTTPConnection(urlsplit(self.gateway).netloc, timeout=TIMEOUT_SECONDS)
        connection.request("POST", "/v1/chat/completions", chat.body, chat.headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        self._told(chat, headers)
        self._begun.append(UnderWay(chat, headers[AGENT], connection, answer))
        return self._begun[-1]

    def ask(self, place: int) -> None:
        """One after the other, until the test has seen enough."""
        for seed in count(place * 100_000):  # no two ask the same
            if self._over.wait(PAUSE_SECONDS):
                return
            (chat,) = chats(
                [self.customers[(seed + place) % len(self.customers)]],
                1,
                seed=seed,
                manners=["whole", "stream"],
                model=self.model,
            )
            with self._lock:
                self._asking[place] = gateway = self.gateway
            try:
                self._asked(gateway, replace(chat, max_tokens=3 + seed % 14))
            except Exception as problem:  # whatever it is, it is no whole answer
                self.failures.append(f"{chat.manner} of {chat.customer.organisation} at {gateway}: {problem!r}")
            finally:
                self._asking[place] = ""

    def _asked(self, gateway: str, chat: Chat) -> None:
        connection = HTTPConnection(urlsplit(gateway).netloc, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("POST", "/v1/chat/completions", chat.body, chat.headers)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            if PROMPT in headers:
                self._told(chat, headers)
            whole(chat, answer.status, answer.read())
        finally:
            connection.close()

    def long_at(self, agent: str) -> UnderWay:
        """One of that very agent. Others may begin elsewhere meanwhile."""
        begun: list[UnderWay] = []
        for seed in range(MOST_BEGUN):
            begun.append(self.long(self.customers[seed % len(self.customers)], seed=len(self.recount.answers) + seed))
            if begun[-1].agent == agent:
                return begun[-1]
        raise AssertionError(f"of {MOST_BEGUN} requests none went to {agent}")

    def _told(self, chat: Chat, headers: dict[str, str]) -> None:
        self.recount.answered(chat.request, chat.customer.organisation, headers)
        with self._lock:
            self.revisions.setdefault(headers[NAMESPACE], set()).add(int(headers[REVISION]))

    def stop(self) -> None:
        """Nobody asks any more; whoever waits for a long answer waits for its end."""
        self._over.set()
        for one in self._begun:
            try:
                one.whole()
            except NotWhole as problem:
                self.failures.append(f"a long answer of {one.agent}: {problem!r}")


@contextmanager
def clients_asking(customers: Sequence[Customer], model: str, gateway: str) -> Iterator[Clients]:
    clients = Clients(customers, model, gateway)
    asking = [threading.Thread(target=clients.ask, args=(place,)) for place in range(AT_ONCE)]
    for thread in asking:
        thread.start()
    try:
        yield clients
    finally:
        clients.stop()
        for thread in asking:
            thread.join()
