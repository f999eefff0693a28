"""A gateway is replaced while it answers: the old process ends with its last answer, or tells whom it cut off.

Every core is busy with something else meanwhile, and nothing here judges how long anything takes.
"""

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from engine_agent.journal.records import Closed, Opened
from tests.engines.processes import Engine, state_folder
from tests.gateway.snapshots import KEY, MODEL, engine_snapshot, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import fleet_engine, told_as
from tests.integration.test_gateway_process import Process, gateway, joined_before
from tests.support.busy import cores_busy
from tests.support.waiting import wait_until
from tests.usage.recount import KeptJournals, Recount, journals_kept, total, truth_of

TOKENS = 1_900  # nearly all that fit: another gateway is up before the last one comes
PATIENCE_SECONDS = 120
LARGE_BYTES = 8 * 2**20  # more than sockets hold: the answer comes while the body is still being sent
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}


@dataclass(slots=True)
class Events:
    """A stream, read event by event."""

    answer: HTTPResponse
    headers: dict[str, str]
    lines: list[bytes] = field(default_factory=list)

    def read(self) -> None:
        """One more event."""
        while line := self.answer.readline().strip():
            self.lines.append(line.removeprefix(b"data: "))

    def read_all(self) -> None:
        self.lines += [line.removeprefix(b"data: ") for line in self.answer.read().splitlines() if line]

    @property
    def last(self) -> Any:
        return json.loads(self.lines[-1])

    @property
    def tokens(self) -> int:
        return sum("choices" in line.decode() and '"text"' in line.decode() for line in self.lines)


@contextmanager
def stream(url: str, request: str, *, tokens: int) -> Iterator[Events]:
    """A stream whose first event has arrived."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", "/v1/completions", body(tokens, stream=True), {**HEADERS, "x-request-id": request})
        answer = connection.getresponse()
        events = Events(answer, {name.lower(): value for name, value in answer.getheaders()})
        events.read()
        yield events
    finally:
        connection.close()


def body(tokens: int, **fields: Any) -> bytes:
    usage = {"stream_options": {"include_usage": True}} if fields.get("stream") else {}
    asked = {"model": MODEL, "prompt": "Hello", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return json.dumps({**asked, **usage, **fields}).encode()


def whole_answer(url: str, request: str, tokens: int) -> httpx.Response:
    headers = {**HEADERS, "x-request-id": request}
    return httpx.post(f"{url}/v1/completions", content=body(tokens), headers=headers, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with fleet_engine("agent-1") as running:
        assert running.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
        yield running


@pytest.fixture
def journals(engine: Engine) -> Iterator[KeptJournals]:
    """Beside the engine's own: links do not cross file systems."""
    with journals_kept(engine.state.parent / "kept", engine.state) as kept:
        yield kept


@pytest.fixture
def busy() -> Iterator[None]:
    with cores_busy():
        yield


@contextmanager
def gateway_of(engine: Engine, *arguments: str) -> Iterator[Process]:
    with ExitStack() as opened:
        home = opened.enter_context(state_folder())
        home.mkdir()
        address = f"http://127.0.0.1:{engine.port}"
        joined_before(home, gateway_snapshot(tenants(), route("agent-1", address)))
        running = opened.enter_context(gateway("--home", str(home), "--canary-seconds", "0", *arguments))
        wait_until(lambda: httpx.get(f"{running.url}/health").status_code == 200)
        yield running


@contextmanager
def answering(url: str, engine: Engine, tokens: int) -> Iterator["tuple[Events, Future[httpx.Response]]"]:
    """A stream, and an answer of which nothing has been sent yet."""
    with stream(url, "stream", tokens=tokens) as events, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(whole_answer, url, "whole", tokens)
        wait_until(lambda: engine.admin("GET", "/stats").json["running"] == 2)
        yield events, answer


def test_answers_outlive_the_replacement_of_their_gateway(engine: Engine, busy: None) -> None:
    with gateway_of(engine) as old, answering(old.url, engine, TOKENS) as (events, answer):
        old.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(old.url))
        with gateway_of(engine, "--port", str(urlsplit(old.url).port)) as new:
            assert new.url == old.url
            assert old.process.poll() is None, "it ended while it had answers to finish"
            assert whole_answer(new.url, "new", 1).status_code == 200
            events.read_all()
            assert events.lines[-1] == b"[DONE]"
            assert json.loads(events.lines[-2])["usage"]["completion_tokens"] == TOKENS
            assert answer.result().json()["usage"]["completion_tokens"] == TOKENS
            assert old.process.wait(PATIENCE_SECONDS) == 0


def accepts(url: str) -> bool:
    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname, place.port), timeout=PATIENCE_SECONDS).close()
    except ConnectionError:  # refused, or reset where it stops listening this moment
        return False
    return True


def test_a_cut_answer_names_its_cause_and_counts_once(engine: Engine, journals: KeptJournals, busy: None) -> None:
    before, recount = len(journals.opened()), Recount()
    with (
        gateway_of(engine, "--drain-seconds", "0.2") as running,
        answering(running.url, engine, TOKENS) as (events, answer),
    ):
        recount.answered("stream", "acme", events.headers)
        recount.doubted("whole", "no header of it has left")
        running.process.send_signal(signal.SIGTERM)
        events.read_all()
        assert events.last["error"]["code"] == "gateway_stopped"
        assert b"[DONE]" not in events.lines
        refused = answer.result()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_stopped")
        assert refused.headers["retry-after"]
        assert running.process.wait(PATIENCE_SECONDS) == 0
    wait_until(lambda: engine.admin("GET", "/stats").json["running"] == 0)
    opened = journals.opened()[before:]
    assert total(truth_of(recount, opened).sums) == total(recount.lower()), "what sent no header is not counted"
    (of_stream,) = opened
    closed = until_closed(journals, of_stream)
    assert (closed.outcome, events.tokens <= closed.generated_tokens < TOKENS) == ("cancelled", True)


def until_closed(journals: KeptJournals, opened: Opened) -> Closed:
    wait_until(lambda: opened.request_id in (record.request_id for record in journals.closed()))
    return next(record for record in journals.closed() if record.request_id == opened.request_id)


def test_draining_gateway_answers_or_closes_open_connections(engine: Engine, subtests: pytest.Subtests) -> None:
    """One that has not asked anything yet, an idle one, and one whose head is being sent."""
    with gateway_of(engine) as running, stream(running.url, "long", tokens=TOKENS) as events:
        place = urlsplit(running.url)
        unused = HTTPConnection(place.netloc, timeout=PATIENCE_SECONDS)
        unused.connect()
        idle, half = (
            socket.create_connection((place.hostname, place.port), timeout=PATIENCE_SECONDS) for _ in range(2)
        )
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: gateway\r\n\r\n")
        assert idle.recv(65_536).startswith(b"HTTP/1.1 200")
        half.sendall(b"GET /health HTTP/1.1\r\n")
        wait_until(lambda: sample_connections(running.url) >= 4)
        running.process.send_signal(signal.SIGTERM)
        with subtests.test(msg="an idle connection is closed at once"):
            while idle.recv(65_536):
                pass
            assert running.process.poll() is None, "it waited with that for its last answer"
        wait_until(lambda: not accepts(running.url))
        with subtests.test(msg="a request on an open connection is told to go elsewhere"):
            unused.request("POST", "/v1/completions", body(1, user="x" * LARGE_BYTES), HEADERS)
            answer = unused.getresponse()
            assert (answer.status, json.loads(answer.read())["error"]["code"]) == (503, "draining")
            assert answer.headers["connection"] == "close"
            assert answer.headers["retry-after"]
        with subtests.test(msg="a head that is being sent is still answered"):
            half.sendall(b"host: gateway\r\n\r\n")
            assert b'"draining"' in b"".join(iter(lambda: half.recv(65_536), b""))  # until the gateway closes it
        for connection in (unused, idle, half):
            connection.close()
        events.read_all()
        assert events.lines[-1] == b"[DONE]"
        assert running.process.wait(PATIENCE_SECONDS) == 0


def sample_connections(url: str) -> float:
    """Of its clients, this one among them."""
    told = httpx.get(f"{url}/metrics").text
    (line,) = (line for line in told.splitlines() if line.startswith("luminet_gateway_connections "))
    return float(line.split()[1]) - 1
