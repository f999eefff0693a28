"""Clients of a fleet: chats that stream or do not, leave early, come in bursts. All recounted."""

import json
import random
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Literal
from urllib.parse import urlsplit

from tests.usage.recount import AGENT, PROMPT, Recount

Manner = Literal["whole", "stream", "leaves_after_headers", "leaves_at_once"]
MANNERS: Sequence[Manner] = ("whole", "stream", "stream", "leaves_after_headers", "leaves_at_once")
TIMEOUT_SECONDS = 60
LEFT = "left at once"
END = b"data: [DONE]"
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


class NotWhole(Exception):
    """An answer that no client would call one."""


def whole(chat: Chat, status: int, body: bytes) -> None:
    if status != 200:
        raise NotWhole(f"status {status}: {body[:300]!r}")
    last = _last_of_stream(body) if chat.manner == "stream" else json.loads(body)
    reason = last["choices"][0]["finish_reason"]
    if reason != "length":  # all of what was asked for: these answers end at nothing else
        raise NotWhole(f"finish_reason {reason!r}: …{body[-300:]!r}")


def _last_of_stream(body: bytes) -> "dict[str, list[dict[str, str]]]":
    events = [one for one in body.split(b"\n\n") if one.strip()]
    if not events or events[-1].strip() != END:
        raise NotWhole(f"the stream has no end: …{body[-300:]!r}")
    found: dict[str, list[dict[str, str]]] = json.loads(events[-2].removeprefix(b"data: "))
    return found


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
        self.recount.doubted(chat.request, LEFT)
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
            self._read(chat, answer)
        return None

    def _read(self, chat: Chat, answer: HTTPResponse) -> None:
        """What becomes of it after its headers is no matter of the count."""
        try:
            body = answer.read()
            if answer.status == HTTPStatus.OK:
                whole(chat, answer.status, body)
        except (NotWhole, ValueError, HTTPException, OSError) as problem:
            self.recount.cut_short(f"{chat.manner} {chat.request}: {problem!r}")
