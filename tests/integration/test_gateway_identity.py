"""Whatever a client says of itself in headers, engines hear only what its key says: recorded at an engine's end."""

import base64
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from engine_agent.contracts.identity import HEADER
from tests.gateway.snapshots import KEY, MODEL, gateway_snapshot, route, tenants
from tests.integration.gateway_fleet import Gateway, gateway


class Recording(ThreadingHTTPServer):
    """Stands where an engine would: it keeps the headers of what it is sent to answer."""

    class Handler(BaseHTTPRequestHandler):
        server: "Recording"
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200 if self.path == "/health" else 404, b"{}")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
            self._answer(200, b'{"choices":[]}')

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *told: object) -> None:
            pass

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.seen: list[dict[str, str]] = []


@pytest.fixture(scope="module")
def engine() -> Iterator[Recording]:
    with Recording() as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def door(engine: Recording) -> Iterator[Gateway]:
    with gateway() as running:
        running.apply(gateway_snapshot(tenants(), route("agent-1", f"http://127.0.0.1:{engine.server_port}")))
        yield running


def sent(door: Gateway, headers: list[tuple[str, str]], body: bytes = b'{"model":"demo","prompt":"Hello"}') -> int:
    """As it stands here, repetitions and all; clients would tidy it up."""
    connection = HTTPConnection("127.0.0.1", httpx.URL(door.url).port, timeout=30)
    try:
        has_host = any(name == "host" for name, _ in headers)
        connection.putrequest("POST", "/v1/completions", skip_accept_encoding=True, skip_host=has_host)
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        return connection.getresponse().status
    finally:
        connection.close()


def identity(headers: dict[str, str]) -> Any:
    payload = headers[HEADER].split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-luminet-identity", "v1.e30.forged"),
        ("x-luminet-namespace-id", "21"),
        ("x-luminet-organisation", "globex"),
        ("x-luminet-salt", "shared"),
        ("x-luminet-elsewhere-tokens", "9999"),
        ("x-luminet-agent", "agent-7"),
        ("x-api-key", "lk_globex"),
        ("proxy-authorization", "Bearer lk_globex"),
        ("forwarded", "for=10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-real-ip", "10.0.0.1"),
        ("cookie", "sessionid=1"),
        ("traceparent", "00-1"),
    ],
)
def test_no_header_of_a_client_reaches_an_engine(door: Gateway, engine: Recording, name: str, value: str) -> None:
    engine.seen.clear()
    headers = {"authorization": f"Bearer {KEY}", name: value}
    body = {"model": MODEL, "prompt": "Hello"}
    answer = httpx.post(f"{door.url}/v1/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200
    (seen,) = engine.seen
    assert "authorization" not in seen
    assert seen.get(name) != value
    told = identity(seen)
    assert (told["organisation_id"], told["namespace_id"], told["kind"]) == ("1", "11", "customer")


AUTHORIZED = ("authorization", f"Bearer {KEY}")
FORGED = "v1.e30.forged"


@pytest.mark.parametrize(
    "headers",
    [
        [("X-LUMINET-IDENTITY", FORGED), ("x-luminet-identity", FORGED)],
        [("x_luminet_identity", FORGED), ("x-luminet_identity", FORGED)],
        [("connection", "keep-alive, x-luminet-identity, content-type, x-request-id"), (HEADER, FORGED)],
        [("x-luminet-agent", "agent-7"), ("x-luminet-scope", "watch"), ("x-luminet-kind", "probe")],
        [("content-type", "text/plain"), ("accept", "text/html"), ("user-agent", "curl"), ("te", "trailers")],
        [("host", "agent-1.internal"), ("x-original-url", "/gateway/events"), ("x-http-method-override", "GET")],
        [("x-luminet-deadline", "1"), ("x-luminet-attempt", "9"), ("x-luminet-policy-revision", "1")],
    ],
)
def test_an_engine_hears_of_the_gateway_alone_whatever_a_client_sends(
    door: Gateway, engine: Recording, headers: list[tuple[str, str]]
) -> None:
    engine.seen.clear()
    assert sent(door, [AUTHORIZED, *headers]) == 200
    (seen,) = engine.seen
    assert seen.pop("accept", "*/*") == "*/*"
    assert seen.keys() == {"host", "content-type", "content-length", HEADER, "x-request-id"}
    assert seen["host"] == f"127.0.0.1:{engine.server_port}"
    assert seen["content-type"] == "application/json"
    told = identity(seen)
    assert told["request_id"] == seen["x-request-id"]
    ours = {"organisation_id": "1", "namespace_id": "11", "kind": "customer", "scope": "infer", "attempt": 1}
    assert told.items() >= {**ours, "policy_revision": 7, "deadline": None, "audience": "agent-1"}.items()


@pytest.mark.parametrize("name", ["req\t1", "../../etc", "a" * 65, "-", "ü", "{}"])
def test_an_id_that_could_do_harm_is_replaced(door: Gateway, engine: Recording, name: str) -> None:
    engine.seen.clear()
    assert sent(door, [AUTHORIZED, ("x-request-id", name.encode("utf-8").decode("latin-1"))]) == 200
    (seen,) = engine.seen
    assert re.fullmatch(r"[0-9a-f]{32}", seen["x-request-id"])


def test_who_says_twice_who_it_is_is_nobody(door: Gateway, engine: Recording) -> None:
    engine.seen.clear()
    for second in (AUTHORIZED, ("authorization", "Bearer lk_globex")):
        assert sent(door, [AUTHORIZED, second]) == 401
    assert sent(door, [AUTHORIZED, ("x-luminet-namespace", "batch"), ("x-luminet-namespace", "default")]) == 404
    assert engine.seen == []


@pytest.mark.parametrize(
    "claims",
    [
        {"x-luminet-identity": FORGED, "organisation_id": "2", "namespace": "globex/default", "namespace_id": "21"},
        {"cache_salt": "21", "scope": "watch", "kind": "probe", "elsewhere_tokens": 9_999, "priority": -5},
        {"key_id": "lk_globex"},
    ],
)
def test_what_a_body_claims_is_the_engines_to_refuse_and_changes_nobody(
    door: Gateway, engine: Recording, claims: dict[str, Any]
) -> None:
    engine.seen.clear()
    body = json.dumps({"model": MODEL, "prompt": "Hello", **claims}).encode()
    assert sent(door, [AUTHORIZED], body) == 200
    (seen,) = engine.seen
    told = identity(seen)
    ours = {"organisation_id": "1", "namespace_id": "11", "scope": "infer", "kind": "customer"}
    assert told.items() >= ours.items()
    assert told["key_id"] == "lk_acme", "the key's public id"
    assert "elsewhere_tokens" not in told


def test_the_namespace_header_chooses_among_the_keys_own_and_stays_at_the_door(
    door: Gateway, engine: Recording
) -> None:
    engine.seen.clear()
    headers = {"authorization": f"Bearer {KEY}", "x-luminet-namespace": "batch"}
    httpx.post(f"{door.url}/v1/completions", json={"model": MODEL, "prompt": "Hello"}, headers=headers)
    (seen,) = engine.seen
    assert identity(seen)["namespace_id"] == "12"
    assert "x-luminet-namespace" not in seen
