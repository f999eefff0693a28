"""The demo's traffic: a client of the gateway like any other, with the demo's keys and a switch.

It waits for the gateway, sends less often while requests fail, and logs each change of state once. It writes its state
to Redis with an expiry of a few seconds, so that other processes see whether it runs.
"""

import contextlib
import heapq
import http.client
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import redis

from controlplane.common.health import DEMO_TRAFFIC_ALIVE_SECONDS, DEMO_TRAFFIC_KEY, redis_client
from controlplane.demo.chats import MOST_TOKENS, Customer, Messages, customers

log = logging.getLogger("luminet.demo_traffic")
USER_AGENT: Final = "luminet-demo-traffic"
MODEL: Final = "luminet-demo"
ANSWER_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 2.0  # how often it reads the switch
LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 1.0, 60.0
SENDS, PAUSED, WAITS = "sends", "paused", "waits"  # the states it reports


class Stopped(BaseException):
    """A signal asked the process to end."""


class NotAnswered(Exception):
    """The gateway cannot be reached, or refuses."""


@dataclass(slots=True)
class Gateway:
    """A connection to the gateway, which reopens after it broke."""

    url: str
    _connection: http.client.HTTPConnection | None = None

    def chat(self, customer: Customer, key: str, messages: Messages) -> str:
        """Return the answer's text. Raise NotAnswered with the reason."""
        body = {"model": MODEL, "messages": messages, "max_tokens": MOST_TOKENS, "user": USER_AGENT}
        headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "x-luminet-namespace": customer.namespace,
        }
        try:
            status, response_body = self._asked(json.dumps(body).encode(), headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NotAnswered(f"the gateway does not answer: {error}") from error
        return _text(status, response_body)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _asked(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        if self._connection is None:
            self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
        self._connection.request("POST", f"{parts.path.rstrip('/')}/v1/chat/completions", body, dict(headers))
        response = self._connection.getresponse()
        return response.status, response.read()


def _text(status: int, response_body: bytes) -> str:
    try:
        answer: Any = json.loads(response_body)
        if status == 200:
            return str(answer["choices"][0]["message"]["content"])
        why = answer["error"]["message"]
    except (ValueError, LookupError, TypeError):
        why = "no JSON that we know"
    raise NotAnswered(f"the gateway answers {status}: {str(why)[:200]}")


@dataclass(slots=True)
class Traffic:
    """The traffic's loop. It calls `is_on` and `keys` often, so a switch or a new key takes effect within seconds."""

    gateway: Gateway
    customers: list[Customer]
    is_on: Callable[[], bool]
    keys: Callable[[], Mapping[str, str]]
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _pause: float = 0.0
    _state: str = ""
    _why: str = ""
    _due: list[tuple[float, int]] = field(default_factory=list)

    def run(self) -> NoReturn:
        while True:
            self.step()

    def step(self) -> None:
        """Send the due requests, then wait."""
        if not self.is_on():
            self._become(PAUSED)
            self._due = []
            self.sleep(LOOK_SECONDS)
            return
        try:
            self._send_due()
        except NotAnswered as error:
            self._pause = min(MOST_PAUSE_SECONDS, max(LEAST_PAUSE_SECONDS, 2 * self._pause))
            self._become(WAITS, str(error))
            self._wait(self._pause)
        else:
            self._pause = 0.0
            self._wait(max(0.0, self._due[0][0] - self.clock()))

    def _send_due(self) -> None:
        now = self.clock()
        if not self._due:
            self._due = [(now, index) for index in range(len(self.customers))]
        keys = self.keys()
        if not keys:
            raise NotAnswered("there is no key of a demo organisation")
        while self._due[0][0] <= now:
            _, index = heapq.heappop(self._due)
            customer = self.customers[index]
            heapq.heappush(self._due, (now + customer.every_seconds, index))
            if key := keys.get(customer.organisation):
                self._ask(customer, key)

    def _ask(self, customer: Customer, key: str) -> None:
        try:
            for messages in customer.way.asks():
                customer.way.answered(self.gateway.chat(customer, key, messages))
                self._become(SENDS)
        except NotAnswered:
            customer.way.failed()
            raise

    def _wait(self, seconds: float) -> None:
        """Sleep in short steps, so that the switch takes effect and the state in Redis stays fresh."""
        until = self.clock() + seconds
        while (remaining_seconds := until - self.clock()) > 0 and self.is_on():
            self.tell(self._state)
            self.sleep(min(remaining_seconds, LOOK_SECONDS))

    def _become(self, state: str, why: str = "") -> None:
        if (state, why) != (self._state, self._why):
            log.info("demo traffic %s%s", state, f": {why}" if why else "")
        self._state, self._why = state, why
        self.tell(state)


def run(demo_file: Path) -> int:
    """Run the traffic's process until a signal ends it. Return its exit code."""
    from django.conf import settings  # the caller has set Django up

    environment = settings.ENVIRONMENT
    if environment.demo_gateway is None:
        log.error("LUMINET_DEMO_GATEWAY is not set: where the demo's traffic is to go")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    with contextlib.suppress(Stopped), redis_client(environment.redis_url) as client:
        Traffic(
            Gateway(environment.demo_gateway),
            customers(seed=int(time.time())),
            is_on=_switch(),
            keys=_keys(demo_file),
            tell=lambda state: _told(client, state),
        ).run()
    return 0


def _stop(*_: object) -> NoReturn:
    raise Stopped


def _told(client: redis.Redis, state: str) -> None:
    with contextlib.suppress(redis.RedisError):
        client.set(DEMO_TRAFFIC_KEY, state, ex=DEMO_TRAFFIC_ALIVE_SECONDS)


def _switch() -> Callable[[], bool]:
    """Return a function that reads the switch. While the database does not answer: the last value, initially off."""
    from django.db import DatabaseError

    from controlplane.analytics.demo_traffic import demo_traffic_now

    last = False

    def is_on() -> bool:
        nonlocal last
        with contextlib.suppress(DatabaseError), _connection():
            last = demo_traffic_now().is_on
        return last

    return is_on


def _keys(file: Path) -> Callable[[], Mapping[str, str]]:
    """Return a function that reads the keys from the stack's file at each call, or makes keys without such a file."""
    from controlplane.demo.memory import demo_keys_read
    from controlplane.demo.seed import demo_traffic_keys

    traffic_keys = dict[str, str]()

    def keys() -> Mapping[str, str]:
        if file.exists():
            return demo_keys_read(file)
        if not traffic_keys:
            with _connection():
                traffic_keys.update(demo_traffic_keys())
        return traffic_keys

    return keys


@contextlib.contextmanager
def _connection() -> Iterator[None]:
    """Close the database connection after use: the next query may be minutes away."""
    from django.db import connection

    try:
        yield
    finally:
        connection.close()
