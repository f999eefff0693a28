"""What a fleet hears in a soak: people, programs, agents and customers, and clients that send what nobody should."""

import asyncio
import contextlib
import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import urlsplit

import httpx
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.fleet.fleets import Fleet
from tests.gateway import bad_clients
from tests.usage.chats import Customer, Door, chats
from tests.usage.recount import Recount
from tests.web.random_input import Sent, agent_case, complaints, http_case, socket_case

TIMEOUT_SECONDS = 120.0
PAUSE_SECONDS = 0.2  # after something went wrong
MOST_PAGES = 200
BATCH = 60  # random cases, or bad requests, at a time
SOCKETS, OPEN_SECONDS = 10, 2.0
HUGE_HEAD_BYTES = 24 << 20
BODY_BYTES = (900_000, 3 << 20, 15 << 20)
RESETS = 50
REST = ("/orgs", "/orgs/acme/namespaces", "/orgs/acme/stats?window=1h", "/fleet/agents", "/audit", "/openapi.json")
LINK = re.compile(r'href="(/[^"#]*)"')


@dataclass(slots=True)
class Traffic:
    """`cookie`: of an operator who is signed in. `token`: of an agent that only this traffic speaks for."""

    fleet: Fleet
    cookie: str = field(repr=False)
    token: str = field(repr=False)
    gateway: str
    customer: Customer
    done: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def web(self) -> str:
        return self.fleet.web

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Each kind in a thread, over and over."""
        kinds: list[Callable[[], None]] = [
            *(self._pages, self._rest, self._sockets, self._chats),
            *(self._random, self._heads, self._bodies, self._resets, self._bad_requests),
        ]
        threads = [threading.Thread(target=self._repeat, args=(kind,)) for kind in kinds]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _repeat(self, kind: Callable[[], None]) -> None:
        name = kind.__name__.strip("_")
        while not self._over.is_set():
            try:
                kind()
                self.done[name] += 1
            except Exception as problem:  # a soak goes on; what went wrong is told at its end
                self.problems[f"{name}: {problem!r:.100}"] += 1
                self._over.wait(PAUSE_SECONDS)

    # Ordinary

    def _pages(self) -> None:
        """Whatever an operator reaches by links, page after page."""
        with httpx.Client(base_url=self.web, headers={"cookie": self.cookie}, timeout=TIMEOUT_SECONDS) as client:
            known, ahead = {"/"}, ["/"]
            while ahead and not self._over.is_set():
                found = client.get(ahead.pop(0))
                links = [link.replace("&amp;", "&") for link in LINK.findall(found.text)]
                new = [link for link in dict.fromkeys(links) if link not in known and _is_page(link)]
                new = new[: MOST_PAGES - len(known)]
                known.update(new)
                ahead += new
                self.done["page"] += 1

    def _rest(self) -> None:
        number = next(self._numbers)
        with self.fleet.rest() as rest:
            for path in REST:
                rest.ask("GET", path)
            rest.ask("PUT", "/orgs/acme/policy", {"policy": {"kv_dtype": "bf16", "ttl_seconds": 600 + number % 1_000}})
        self._over.wait(PAUSE_SECONDS)

    def _sockets(self) -> None:
        url = f"ws{self.web.removeprefix('http')}/ws/live/fleet"
        with contextlib.ExitStack() as opened:
            for _ in range(SOCKETS):
                opened.enter_context(
                    connect(
                        url, origin=Origin(self.web), additional_headers={"cookie": self.cookie}, ping_interval=None
                    )
                )
            self._over.wait(OPEN_SECONDS)

    def _chats(self) -> None:
        asked = chats([self.customer], 4, seed=next(self._numbers), max_tokens=20)
        Door(self.gateway, Recount()).burst(list(asked), at_once=4)

    # Hostile

    def _random(self) -> None:
        """Bytes that are nearly HTTP, sockets that make no sense, agents' reports that were spoiled."""
        cases = [self._case(next(self._numbers)) for _ in range(BATCH)]
        found, _ = asyncio.run(complaints(_port(self.web), cases))
        self.problems.update(f"random: {complaint:.100}" for complaint in found)

    def _case(self, number: int) -> Sent:
        if number % 3 == 0:
            return http_case(number, seed=1, cookie=self.cookie)
        if number % 3 == 1:
            return socket_case(number, seed=1, cookie=self.cookie, origin=self.web)
        return agent_case(number, seed=1, token=self.token, join=self.fleet.tokens["join"])

    def _heads(self) -> None:
        """Far longer than any head may be."""
        for address in (self.web, self.gateway):
            with _connected(address) as near, contextlib.suppress(OSError):
                near.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + bytes(HUGE_HEAD_BYTES))
                near.recv(65_536)
        self._over.wait(PAUSE_SECONDS)

    def _bodies(self) -> None:
        """As long as is let in, and longer; of callers that are known, and of others."""
        for size in BODY_BYTES:
            for token in (self.token, "nobody"):
                self._post(f"{self.web}/agent/v1/reports", token, b"[" + b"1," * (size // 2) + b"1]")
            self._post(f"{self.gateway}/v1/completions", self.customer.key, json.dumps({"prompt": "x" * size}).encode())
        self._post(
            f"{self.web}/api/v1/orgs", self.fleet.tokens["operator"], json.dumps({"slug": "x" * 900_000}).encode()
        )

    def _post(self, url: str, token: str, body: bytes) -> None:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        with contextlib.suppress(httpx.TransportError):  # cut off in the midst of it
            httpx.post(url, content=body, headers=headers, timeout=TIMEOUT_SECONDS)

    def _resets(self) -> None:
        """Connections that were answered, and are reset instead of closed."""
        for address in (self.web, self.gateway):
            for _ in range(RESETS):
                with _connected(address) as near:
                    near.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"x" * 8_000 + b"\r\n\r\n")
                    near.recv(65_536)
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._over.wait(PAUSE_SECONDS)

    def _bad_requests(self) -> None:
        asyncio.run(bad_clients.send_all(_port(self.gateway), BATCH, seed=next(self._numbers)))


def _is_page(link: str) -> bool:
    return not link.startswith(("/static", "/api")) and "sign-out" not in link


def _port(address: str) -> int:
    return urlsplit(address).port or 80


def _connected(address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", _port(address)), timeout=TIMEOUT_SECONDS)
