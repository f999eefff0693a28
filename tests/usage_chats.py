"""Clients of a fleet: chats that stream or do not, leave early, come in bursts. All recounted."""

import json
import random
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Literal
from urllib.parse import urlsplit

from tests.recount import AGENT, PROMPT, Recount

Manner = Literal["whole", "stream", "leaves_after_headers", "leaves_at_once"]
MANNERS: Sequence[Manner] = ("whole", "stream", "stream", "leaves_after_headers", "leaves_at_once")
TIMEOUT_SECONDS = 60
SHARED = ("You answer questions about the standard library, briefly and with an example. " * 3).strip()


@dataclass(frozen=True, slots=True)
class Customer:
    organisation: str
    key: str = field(repr=False)
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    customer: Customer
    manner: Manner
    messages: Sequence[Mapping[str, str]]
    max_tokens: int = 3
    model: str = "demo"
    request: str = field(default_factory=lambda: f"chat-{uuid.uuid4().hex}")

    @property
    def body(self) -> bytes:
        asked = {"model": self.model, "messages": self.messages, "max_tokens": self.max_tokens, "temperature": 0}
        streams = self.manner in ("stream", "leaves_after_headers")
        return json.dumps(asked | {"stream": streams, "ignore_eos": True}).encode()

    @property
    def headers(self) -> dict[str, str]:
        bound = {} if self.customer.namespace is None else {"x-luminet-namespace": self.customer.namespace}
        known = {"authorization": f"Bearer {self.customer.key}", "x-request-id": self.request}
        return {"content-type": "application/json", **known, **bound}


def chats(
    customers: Sequence[Customer],
    count: int,
    *,
    seed: int,
    manners: Sequence[Manner] = MANNERS,
    model: str = "demo",
    max_tokens: int = 3,
) -> Iterator[Chat]:
    """Some share their beginnings, some are new, some are long."""
    chance = random.Random(seed)
    for _ in range(count):
        question = f"What does module {chance.randrange(8)} do?" + " And why?" * chance.randrange(12)
        system = [{"role": "system", "content": SHARED}] if chance.random() < 0.7 else []
        manner = chance.choice(manners)
        yield Chat(
            chance.choice(customers), manner, [*system, {"role": "user", "content": question}], max_tokens, model
        )


@dataclass(slots=True)
class Door:
    """Where chats go: a gateway's address, or an engine's."""

    url: str
    recount: Recount

    def ask(self, chat: Chat) -> None:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_SECONDS)
        try:
            self._asked(connection, chat)
        finally:
            connection.close()

    @contextmanager
    def open(self, chat: Chat) -> Iterator[str]:
        """While its stream goes on; and which agent answers."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("POST", "/v1/chat/completions", chat.body, chat.headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            self.recount.answered(chat.request, chat.customer.organisation, headers)
            yield headers[AGENT]
        finally:
            connection.close()

    def serves(self, model: str, customer: Customer) -> bool:
        """Nothing of it is counted."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {customer.key}"})
            return model in connection.getresponse().read().decode()
        except (HTTPException, OSError):
            return False
        finally:
            connection.close()

    def burst(self, some: Sequence[Chat], *, at_once: int = 8) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(self.ask, some))

    def _asked(self, connection: HTTPConnection, chat: Chat) -> None:
        try:
            connection.request("POST", "/v1/chat/completions", chat.body, chat.headers)
        except ConnectionRefusedError:
            return self.recount.refused(0)
        except (HTTPException, OSError) as problem:
            return self.recount.doubted(chat.request, repr(problem))
        if chat.manner == "leaves_at_once":
            return self._leave(connection, chat)
        return self._answered(connection, chat)

    def _leave(self, connection: HTTPConnection, chat: Chat) -> None:
        """Without having seen whether headers were on their way."""
        self.recount.doubted(chat.request, "left at once")
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)

    def _answered(self, connection: HTTPConnection, chat: Chat) -> None:
        try:
            answer = connection.getresponse()
        except (HTTPException, OSError) as problem:
            return self.recount.doubted(chat.request, repr(problem))
        headers = {name.lower(): value for name, value in answer.getheaders()}
        if PROMPT in headers:
            self.recount.answered(chat.request, chat.customer.organisation, headers)
        elif answer.status >= 500:  # of a gateway: an engine's headers may have left before it was lost
            self.recount.doubted(chat.request, f"status {answer.status}")
        else:
            self.recount.refused(answer.status)
        if chat.manner != "leaves_after_headers":
            with suppress(HTTPException, OSError):  # what becomes of it after its headers is no matter of the count
                answer.read()
        return None
