"""`luminet gateway` as a process: it serves from its last snapshot, whoever is away, and ends as it is told."""

import base64
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engine_agent.contracts.protocol import Snapshot
from engine_agent.process.config import CHECKOUT
from engine_agent.sidecar.credentials import Credentials, credentials_keep
from engine_agent.sidecar.store import Store
from tests.engines.processes import Engine, state_folder
from tests.gateway.snapshots import CHECK, KEY, MODEL, engine_snapshot, gateway_snapshot, namespace, route, tenants
from tests.integration.gateway_fleet import fleet_engine, told_as
from tests.support.ports import free_port
from tests.support.waiting import wait_until

READY_SECONDS = 300  # of a machine that is busy with other things
SEALING = b"s" * 32
REFUSED = 'luminet_sidecar_sends_total{outcome="refused"} 1.0'


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with fleet_engine("agent-1") as running:
        assert running.admin("POST", "/apply", told_as(engine_snapshot(tenants()))).status == 200
        yield running


@pytest.fixture
def home() -> Iterator[Path]:
    with state_folder() as folder:
        folder.mkdir()
        yield folder


def text(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def joined_before(
    home: Path,
    snapshot: Snapshot | None,
    *,
    kind: str = "gateway",
    at: str | None = None,
    agent: str = "gateway-1",
) -> None:
    """What a gateway left behind that had joined a control plane, which nobody reaches now where it is not said."""
    away = f"127.0.0.1:{free_port()}"
    verifying = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    credentials = Credentials(
        url=at or f"http://{away}",
        agent=agent,
        kind=kind,
        group="default",
        token="lat_none",
        key_number=1,
        broker={"url": f"redis://agent.{agent}:x@{away}/0", "prefix": f"agent.{agent}:", "queue": f"agent.{agent}"},
        keys={"verifying": text(verifying), "sealing": text(SEALING), "identity": None, "check": text(CHECK)},
    )
    credentials_keep(home, credentials)
    if snapshot is not None:
        Store(home, agent=agent, key=SEALING).keep(7, snapshot)


class Refusing(ThreadingHTTPServer):
    """A control plane that answers everything with one error, as long as it is there."""

    error: tuple[int, str] = (503, "away")

    class Handler(BaseHTTPRequestHandler):
        server: "Refusing"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self) -> None:
            status, code = self.server.error
            body = json.dumps({"error": {"code": code, "message": "So it is."}}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *told: object) -> None:
            pass

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def refusing_control_plane() -> Iterator[Refusing]:
    with Refusing() as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


class Process:
    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "engine_agent.gateway.command", "--port", "0", "--json-logs", *arguments]
        self.process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.logged: list[str] = []
        self._reading = Thread(target=lambda: self.logged.extend(map(bytes.decode, self.process.stderr or [])))
        self._reading.start()
        line = self.process.stdout.readline()
        self.url = json.loads(line)["url"].removesuffix("/v1") if line else ""

    def complete(self, **fields: Any) -> httpx.Response:
        return complete(self.url, **fields)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def complete(url: str, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": "Hello", "max_tokens": 2, "temperature": 0, **fields}
    return httpx.post(f"{url}/v1/completions", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=30)


@contextmanager
def gateway(*arguments: str) -> Iterator[Process]:
    running = Process(*arguments)
    try:
        yield running
    finally:
        running.end()


def refused_to_start(*arguments: str) -> str:
    with gateway(*arguments) as running:
        assert running.process.wait(READY_SECONDS) == 1
        running.end()
        return running.logged[-1]


def snapshot_of(engine: Engine) -> Snapshot:
    return gateway_snapshot(tenants(), route("agent-1", f"http://127.0.0.1:{engine.port}"))


def test_it_serves_from_its_last_snapshot_while_the_control_plane_is_away(engine: Engine, home: Path) -> None:
    joined_before(home, snapshot_of(engine))
    with gateway("--home", str(home)) as running:
        wait_until(lambda: httpx.get(f"{running.url}/health").status_code == 200)
        answer = running.complete()
        assert (answer.status_code, answer.headers["x-luminet-agent"]) == (200, "agent-1")
        metrics = httpx.get(f"{running.url}/metrics").text
        assert 'luminet_gateway_requests_total{model="demo",outcome="answered"} 1.0' in metrics
        assert "luminet_sidecar_spooled_reports" in metrics
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(READY_SECONDS) == 0
    with gateway("--home", str(home)) as running:  # and after the next start too
        wait_until(lambda: httpx.get(f"{running.url}/health").status_code == 200)
        assert running.complete().status_code == 200


def test_its_numbers_are_for_who_has_the_token_once_there_is_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined_before(home, gateway_snapshot(tenants()))
    monkeypatch.setenv("LUMINET_METRICS_TOKEN", "numbers-token")
    with gateway("--home", str(home)) as running:
        for headers in ({}, {"authorization": f"Bearer {KEY}"}, {"authorization": "Bearer numbers-toke"}):
            refused = httpx.get(f"{running.url}/metrics", headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_metrics_token")
            assert "luminet_gateway" not in refused.text
        told = httpx.get(f"{running.url}/metrics", headers={"authorization": "Bearer numbers-token"})
        assert (told.status_code, "luminet_gateway_requests" in told.text) == (200, True)
        running.end()
        assert not [line for line in running.logged if "numbers-token" in line]


def test_the_very_first_request_after_a_restart_is_served(engine: Engine, home: Path) -> None:
    """It comes as soon as anybody listens, and there is much to be read first."""
    many = {
        name: entry for number in range(5_000) for name, entry in namespace(f"n{number}", "1", f"n{number}").items()
    }
    joined_before(home, gateway_snapshot(tenants(), many, route("agent-1", f"http://127.0.0.1:{engine.port}")))
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(at_once, port)
        with gateway("--home", str(home), "--port", str(port)):
            assert first.result().startswith(b"HTTP/1.1 200 ")


def at_once(port: int) -> bytes:
    """What the first request is answered that finds somebody there."""
    body = json.dumps({"model": MODEL, "prompt": "Hello", "max_tokens": 2}).encode()
    head = f"host: x\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with connected(port) as connection:
        connection.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}".encode() + body)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def connected(port: int) -> socket.socket:
    ends_at = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends_at:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), READY_SECONDS)
        time.sleep(0.001)
    raise TimeoutError


def test_one_that_was_revoked_serves_nobody_any_more_also_after_a_restart(engine: Engine, home: Path) -> None:
    with refusing_control_plane() as control_plane:
        joined_before(home, snapshot_of(engine), at=control_plane.url)
        with gateway("--home", str(home)) as running:
            assert running.complete().status_code == 200
            control_plane.error = (403, "revoked")
            wait_until(lambda: code(running) == "revoked")
            assert httpx.get(f"{running.url}/health").json()["error"]["code"] == "revoked"
            assert httpx.get(f"{running.url}/metrics").status_code == 200
        said = [line for line in running.logged if "no request is served any more" in line]
        assert len(said) == 1
        assert "So it is. (403 revoked)" in said[0]
    with gateway("--home", str(home)) as running:  # and the control plane is away
        assert code(running) == "no_snapshot"


def test_a_control_plane_that_knows_it_no_more_takes_no_request_from_it(engine: Engine, home: Path) -> None:
    """As after a backup was brought back there. Nobody said that it may not serve."""
    with refusing_control_plane() as control_plane:
        joined_before(home, snapshot_of(engine), at=control_plane.url)
        with gateway("--home", str(home)) as running:
            assert running.complete().status_code == 200
            control_plane.error = (401, "unknown_token")
            wait_until(lambda: REFUSED in httpx.get(f"{running.url}/metrics").text)
            assert running.complete().status_code == 200


def code(running: Process) -> str:
    """Of the error that a request is answered with; none where it is served."""
    answer = running.complete()
    return "" if answer.status_code == 200 else str(answer.json()["error"]["code"])


def test_without_a_snapshot_it_says_that_it_knows_nobody_yet(home: Path) -> None:
    joined_before(home, None)
    with gateway("--home", str(home)) as running:
        assert httpx.get(f"{running.url}/health").json()["error"]["code"] == "no_snapshot"
        answer = running.complete()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_snapshot")


def test_what_runs_is_finished_before_it_ends(engine: Engine, home: Path) -> None:
    joined_before(home, snapshot_of(engine))
    with gateway("--home", str(home)) as running, httpx.Client(base_url=running.url, timeout=60) as http:
        wait_until(lambda: http.get("/health").status_code == 200)
        body = {"model": MODEL, "prompt": "Hello", "max_tokens": 150, "ignore_eos": True, "stream": True}
        headers = {"authorization": f"Bearer {KEY}"}
        with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            parts = answer.iter_bytes()
            told = next(parts)
            running.process.send_signal(signal.SIGTERM)
            told += b"".join(parts)
        assert told.endswith(b"data: [DONE]\n\n")
        assert running.process.wait(READY_SECONDS) == 0


def test_told_twice_it_ends_at_once(engine: Engine, home: Path) -> None:
    joined_before(home, snapshot_of(engine))
    with gateway("--home", str(home)) as running, httpx.Client(base_url=running.url, timeout=60) as http:
        wait_until(lambda: http.get("/health").status_code == 200)
        body = {"model": MODEL, "prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/completions", json=body, headers={"authorization": f"Bearer {KEY}"}) as answer:
            parts = answer.iter_bytes()
            assert next(parts)
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: any("requests are finished first" in line for line in running.logged))
            running.process.send_signal(signal.SIGTERM)
            rest = b"".join(parts)
            assert b'"gateway_stopped"' in rest
            assert b"[DONE]" not in rest
            assert running.process.wait(READY_SECONDS) == 128 + signal.SIGTERM
    wait_until(lambda: engine.admin("GET", "/stats").json["running"] == 0)


def test_a_home_is_for_one_process_of_one_kind(home: Path, engine: Engine) -> None:
    joined_before(home, snapshot_of(engine))
    with gateway("--home", str(home)):
        assert "another sidecar has this folder" in refused_to_start("--home", str(home))


def test_an_engines_home_is_no_gateways(home: Path) -> None:
    joined_before(home, None, kind="engine")
    assert "is of kind engine" in refused_to_start("--home", str(home))


def test_who_never_joined_is_told_how(home: Path) -> None:
    assert "--join" in refused_to_start("--home", str(home))
    assert "--token" in refused_to_start("--home", str(home), "--join", "https://luminet.example.com")
    assert "use https" in refused_to_start("--home", str(home), "--join", "http://luminet.example.com", "--token", "t")


def test_a_snapshot_that_was_altered_on_disk_is_not_believed(engine: Engine, home: Path) -> None:
    joined_before(home, snapshot_of(engine))
    path = home / "snapshot"
    spoilt = bytearray(path.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    path.write_bytes(bytes(spoilt))
    with gateway("--home", str(home)) as running:
        assert running.complete().json()["error"]["code"] == "no_snapshot"
