"""Engines that break off wherever they can, in front of a gateway that still owes its client a clear end."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, BinaryIO

import httpx
import pytest

from tests.gateway.snapshots import KEY, MODEL, gateway_snapshot, route, split, tenants
from tests.integration.gateway_fleet import Gateway, gateway
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.unit.server.asking import Answered

Answer = Callable[[socket.socket, str], bool]  # says something on a connection; whether it goes on
BODY = json.dumps({"id": "x", "choices": []}).encode()
EVENT = b'data: {"choices":[]}\n\n'
SECONDS = 10
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def good(connection: socket.socket, head: str) -> bool:
    told = b"x-luminet-agent: agent-9\r\nkeep-alive: 5\r\naccess-control-allow-origin: http://evil.example\r\n"
    hop = b"connection: x-hop\r\nx-hop: 1\r\nserver: old\r\nx-request-id: theirs\r\n"
    size = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)
    connection.sendall(b"HTTP/1.1 200 OK\r\n" + told + hop + size + BODY)
    return True


def good_once(connection: socket.socket, head: str) -> bool:
    """And then it is started anew, with the gateway's connection still in somebody's hands."""
    return good(connection, head) and False


def silent(connection: socket.socket, head: str) -> bool:
    return False


def half_a_body(connection: socket.socket, head: str) -> bool:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
    return False


def half_an_event(connection: socket.socket, head: str) -> bool:
    connection.sendall(STREAM + chunk(EVENT) + chunk(EVENT[:9]))
    return False


def no_http(connection: socket.socket, head: str) -> bool:
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    return False


def elsewhere(connection: socket.socket, head: str) -> bool:
    connection.sendall(b"HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
    return True


class Misbehaving:
    """Reads whole requests and answers as told; when it is looked at, it is well."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._socket = answer, socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.heads: list[str] = []
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    @property
    def asked(self) -> int:
        return len(self.heads)

    def close(self) -> None:
        for one in (self._socket, *self._connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "it would go on beside all other tests"

    def _begin(self, deed: Callable[..., None], *of: socket.socket) -> None:
        self._threads.append(threading.Thread(target=deed, args=of, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError):
            reader = connection.makefile("rb")
            while head := _head(reader):
                if head.startswith("GET /health"):
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                    continue
                if head.startswith("GET "):  # what it holds, which it tells nobody
                    connection.sendall(b"HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n")
                    continue
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                reader.read(int(fields["content-length"]))
                self.heads.append(head)
                if not self._answer(connection, head):
                    break
            reader.close()
        connection.close()


def _head(reader: BinaryIO) -> str:
    """Of the next request; empty where the connection ended, before it or in it."""
    lines = b""
    for line in iter(reader.readline, b""):
        if line == b"\r\n":
            return lines.decode("latin-1")
        lines += line
    return ""


@contextmanager
def behind(*answers: Answer, asked_first: str | None = None) -> Iterator[tuple[Gateway, list[Misbehaving]]]:
    with ExitStack() as opened:
        engines = [Misbehaving(answer) for answer in answers]
        for one in engines:
            opened.callback(one.close)
        running = opened.enter_context(gateway())
        routes = [route(f"agent-{number}", one.url) for number, one in enumerate(engines, 1)]
        first = [split([asked_first], 1.0)] if asked_first else []
        running.apply(gateway_snapshot(tenants(), *routes, *first))
        yield running, engines


def complete(running: Gateway, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": "x", **fields}
    return httpx.post(
        f"{running.url}/v1/completions", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=30
    )


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def retries(running: Gateway) -> float:
    """Attempts at engines that were not there."""
    found = running.observer.registry.get_sample_value("luminet_gateway_retries_total", {"reason": "unreachable"})
    return found or 0.0


@pytest.mark.parametrize("bad", [silent, no_http])
def test_who_ends_before_its_headers_is_followed_by_another(bad: Answer) -> None:
    with behind(bad, good, asked_first="agent-1") as (running, (first, second)):
        assert complete(running).status_code == 200
        assert (first.asked, second.asked) == (1, 1)


def test_a_request_that_two_engines_dropped_is_not_tried_on_a_third() -> None:
    """It may be what they died of."""
    with behind(silent, silent, silent) as (running, engines):
        assert told(complete(running)) == (503, "engine_lost")
        assert sum(one.asked for one in engines) == 2


def test_every_attempt_has_an_identity_of_its_own() -> None:
    with behind(silent, silent) as (running, engines):
        complete(running)
        lines = [line for one in engines for head in one.heads for line in head.lower().split("\r\n")]
        identities = [line for line in lines if line.startswith("x-luminet-identity")]
        assert len(set(identities)) == 2
        assert not any(line.startswith("authorization") for line in lines)


def test_an_engine_that_was_started_anew_is_asked_anew() -> None:
    """The gateway's connection to the one before says nothing of the one that is there now."""
    with behind(good_once) as (running, (engine,)):
        assert [complete(running).status_code for _ in range(5)] == [200] * 5
        assert engine.asked == 5


def test_an_answer_that_breaks_off_is_an_error_and_is_not_asked_for_again() -> None:
    with behind(half_a_body, good, asked_first="agent-1") as (running, (first, second)):
        assert told(complete(running)) == (502, "engine_lost")
        assert (first.asked, second.asked) == (1, 0)


def test_a_stream_that_breaks_off_in_an_event_ends_with_whole_events_and_an_error() -> None:
    with behind(half_an_event) as (running, _):
        answer = complete(running, stream=True)
        assert answer.status_code == 200
        events = Answered(200, {}, answer.content).events
        assert events[0] == {"choices": []}
        assert [one["error"]["code"] for one in events[1:]] == ["engine_lost"]


def test_headers_that_are_for_one_connection_or_for_the_gateway_to_say_are_not_passed_on() -> None:
    with behind(good) as (running, _):
        headers = complete(running).headers
        assert headers["x-luminet-agent"] == "agent-9"
        assert headers.get_list("access-control-allow-origin") == ["*"]
        assert headers["x-request-id"] != "theirs"
        assert {"keep-alive", "x-hop", "server"} & set(headers) == set()


def test_of_engines_that_are_known_to_be_away_few_are_asked_and_only_where_there_is_no_other() -> None:
    with behind(good) as (running, (engine,)):
        away = [route(f"agent-{number}", f"http://127.0.0.1:{free_port()}") for number in range(2, 8)]
        running.apply(gateway_snapshot(tenants(), route("agent-1", engine.url), *away))
        wait_until(lambda: not any(running.engines.standing(f"agent-{number}").is_reachable for number in range(2, 8)))
        assert complete(running).status_code == 200
        assert retries(running) == 0
        running.apply(gateway_snapshot(tenants(), *away))
        assert told(complete(running)) == (503, "no_engine")
        assert retries(running) == 3


def test_nobody_is_led_elsewhere() -> None:
    with behind(elsewhere) as (running, (engine,)):
        assert complete(running).status_code == 307
        assert engine.asked == 1
