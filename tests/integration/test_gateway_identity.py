"""Whatever a client says of itself in headers, engines hear only what its key says: recorded at an engine's end."""

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from engine_agent.identity import HEADER
from tests.gateways import KEY, MODEL, gateway_snapshot, route, tenants
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
    answer = httpx.post(f"{door.url}/v1/completions", json={"model": MODEL, "prompt": "Hello"}, headers=headers)
    assert answer.status_code == 200
    (seen,) = engine.seen
    assert "authorization" not in seen
    assert seen.get(name) != value
    told = identity(seen)
    assert (told["organisation_id"], told["namespace_id"], told["kind"]) == ("1", "11", "customer")


def test_the_namespace_header_chooses_among_the_keys_own_and_stays_at_the_door(
    door: Gateway, engine: Recording
) -> None:
    engine.seen.clear()
    headers = {"authorization": f"Bearer {KEY}", "x-luminet-namespace": "batch"}
    httpx.post(f"{door.url}/v1/completions", json={"model": MODEL, "prompt": "Hello"}, headers=headers)
    (seen,) = engine.seen
    assert identity(seen)["namespace_id"] == "12"
    assert "x-luminet-namespace" not in seen
