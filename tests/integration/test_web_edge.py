"""The bounds of the web process' port: what a stranger can send, for how long, and over how many connections."""

import base64
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pytest_django import DjangoDbBlocker

from tests.servers.webs import WebProcess, read_all, web_process
from tests.web.api import make_key, make_organisation

pytestmark = pytest.mark.django_db
SECONDS = "2"  # for a head, and for a body
PER_ADDRESS = 8
HEALTHZ = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
SOCKET = b"host: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
POST = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def web(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    redis_server: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WebProcess]:
    """Nobody's proxy is on this machine, so connections from here are counted."""
    settings = {
        "LUMINET_TRUSTED_PROXIES": "192.0.2.1",
        "LUMINET_WEB_CONNECTIONS_PER_ADDRESS": str(PER_ADDRESS),
        "LUMINET_WEB_HEAD_SECONDS": SECONDS,
        "LUMINET_WEB_BODY_SECONDS": SECONDS,
    }
    with django_db_blocker.unblock(), web_process(tmp_path_factory.mktemp("web"), **settings) as running:
        yield running


def problem(answer: bytes) -> tuple[int, str]:
    """Status and type of an error in the shape of the REST API's."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/problem+json" in lines
    assert b"connection: close" in lines
    document = json.loads(body)
    assert b"x-request-id: " + document["request_id"].encode() in lines
    assert document["status"] == int(head.split()[1])
    return document["status"], document["type"].partition("#problem-")[2]


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_head_too_large_is_refused(web: WebProcess) -> None:
    endless = [b"x: " + b"y" * 65_536] * 20
    assert problem(web.exchange(HEALTHZ, *endless)) == (431, "head-too-large")
    assert problem(web.exchange(HEALTHZ, b"a:\r\n" * 300, b"\r\n")) == (431, "head-too-large")


def test_slow_heads_and_bodies_are_refused(web: WebProcess, acme_key: str) -> None:
    """Whether anybody is known by a token, or is asked for one, makes no difference."""
    unfinished = b"content-length: 100\r\n\r\n{"
    slow = (
        b"",
        HEALTHZ,
        POST % b"/api/v1/orgs" + unfinished,
        POST % b"/agent/v1/enrol" + unfinished,
        POST % b"/sign-in" + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
        POST % b"/api/v1/orgs" + b"authorization: Bearer %b\r\n" % acme_key.encode() + unfinished,
    )
    with ThreadPoolExecutor(len(slow)) as callers:
        answers = list(callers.map(web.exchange, slow))
    assert [problem(answer) for answer in answers] == [(408, "too-slow")] * len(slow)


def test_agent_unknown_is_answered_before_its_body(web: WebProcess) -> None:
    with web.connect() as caller:
        caller.sendall(POST % b"/agent/v1/reports" + b"content-length: 100\r\n\r\n{")
        assert status(caller.recv(65_536)) == 401


def test_trailer_is_no_header(web: WebProcess, acme_key: str) -> None:
    who = b"authorization: Bearer %b\r\n" % acme_key.encode()
    start = b"PUT /api/v1/orgs/acme/policy HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    start += b"content-type: application/json\r\ntransfer-encoding: chunked\r\n"
    assert status(web.exchange(start + who + b"\r\n2\r\n{}\r\n0\r\n\r\n")) not in (401, 403)
    assert status(web.exchange(start + b"\r\n2\r\n{}\r\n0\r\n" + who + b"\r\n")) == 401


@pytest.mark.parametrize("framing", [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"])
def test_upgrade_with_body_is_refused(web: WebProcess, framing: bytes) -> None:
    wish = b"POST /ws/live/fleet HTTP/1.1\r\n" + SOCKET
    assert problem(web.exchange(wish + framing)) == (400, "malformed")


def test_upgrade_to_another_protocol_is_ignored(web: WebProcess) -> None:
    wish = POST % b"/api/v1/orgs" + b"connection: Upgrade, close\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{}"
    assert status(web.exchange(wish)) == 401


def test_address_with_too_many_connections_is_refused(web: WebProcess) -> None:
    """Who leaves makes room, also where a connection had become a live socket."""
    for _ in range(2 * PER_ADDRESS):
        key = base64.b64encode(os.urandom(16))
        wish = b"GET /ws/live/fleet HTTP/1.1\r\n" + SOCKET + b"sec-websocket-key: %b\r\n\r\n" % key
        assert status(web.exchange(wish)) == 403
    callers = [served(web) for _ in range(PER_ADDRESS)]
    try:
        assert problem(web.exchange()) == (503, "overloaded")
        callers[0].sendall(HEALTHZ + b"\r\n")
        assert status(heard(callers[0])) == 200
    finally:
        for caller in callers:
            caller.close()
    served(web).close()


def heard(caller: socket.socket) -> bytes:
    """One whole answer, which ends with JSON and may come in several segments."""
    answer = b""
    while not answer.endswith(b"}") and (data := caller.recv(65_536)):
        answer += data
    return answer


def served(web: WebProcess) -> socket.socket:
    """A connection that is kept open. Those that were closed a moment ago may still be counted."""
    while True:
        caller = web.connect()
        caller.sendall(HEALTHZ + b"\r\n")
        if status(heard(caller)) == 200:
            return caller
        read_all(caller)
        caller.close()


@pytest.mark.parametrize(
    "header", [b"forwarded: for=x", b"via: 1.1 x", b"x-forwarded-for: x", b"x-forwarded-proto: https"]
)
def test_metrics_are_not_passed_on(web: WebProcess, header: bytes) -> None:
    start = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    assert status(web.exchange(start + b"\r\n")) == 200
    assert status(web.exchange(start + header + b"\r\n\r\n")) == 401


@pytest.fixture
def acme_key(transactional_db: None) -> str:
    return make_key(make_organisation("acme"))
