"""A small control plane for one sidecar: the wire of `/agent/v1`, on a real Redis, and nothing decided by itself."""

import base64
import gzip
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any
from urllib.parse import urlsplit

import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controlplane.fleet.broker_rights import SCRIPTS, commands_known, login_rules
from controlplane.rollouts.messages import task_message
from engine_agent.contracts.protocol import Snapshot, change_between, change_encode, queue_name, snapshot_encode
from engine_agent.contracts.sealing import command_seal
from engine_agent.contracts.wire import COMMAND_TASK, Command, Report, batch_decode, command_encode
from engine_agent.process.config import CHECKOUT
from tests.support.ports import free_port

PATIENCE_SECONDS = 120  # of a machine that is busy with other things
JOIN_TOKEN = "ljt_only-for-tests"
AGENT = "unit-1"


@dataclass
class ControlPlane:
    """`ahead_seconds`: of its clock. `is_away`: it answers nothing but 503. `is_revoked`: the agent is."""

    url: str
    redis_url: str
    ahead_seconds: float = 0.0
    is_away: bool = False
    is_revoked: bool = False
    agent: str = AGENT
    kind: str = "engine"
    check: str | None = None  # what makes keys' digests keyed, which gateways get
    signing: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    sealing: bytes = field(default_factory=lambda: os.urandom(32))
    identity: str = field(default_factory=lambda: base64.b64encode(os.urandom(32)).decode())
    token: str = field(default_factory=lambda: f"lat_{secrets.token_hex(8)}")
    desired: tuple[int, Snapshot] | None = None
    watch: tuple[str, ...] = ()
    pins: dict[str, dict[str, Any]] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)  # each once, in order
    heartbeats: list[Mapping[str, Any]] = field(default_factory=list)
    pulls: int = 0
    requests: list[str] = field(default_factory=list)
    spools: dict[str, int] = field(default_factory=dict)
    condition: Condition = field(default_factory=Condition)

    # What a test does

    def now(self) -> float:
        return time.time() + self.ahead_seconds

    def want(self, generation: int, snapshot: Snapshot) -> Snapshot:
        """From now on that is to be held. Nobody is told."""
        self.desired = (generation, snapshot)
        return snapshot

    def publish(self, generation: int, snapshot: Snapshot, *, base: Snapshot | None = None) -> None:
        self.want(generation, snapshot)
        self.send(self.apply_command(generation, snapshot, base=base))

    def apply_command(self, generation: int, snapshot: Snapshot, *, base: Snapshot | None, **fields: Any) -> Command:
        change = None if base is None else base64.b64encode(change_encode(change_between(base, snapshot))).decode()
        body = {"base": None if base is None else base.hash, "target": snapshot.hash, "change": change}
        return self.command("apply", generation, body, **fields)

    def operation_command(self, operation: str, deed: str, *, seconds: float = 60, **arguments: Any) -> Command:
        deadline = self.now() + seconds
        body = {"operation": operation, "deed": deed, "arguments": arguments, "deadline": deadline}
        return self.command("operation", 0, body)

    def command(self, deed: Any, generation: int, body: Mapping[str, Any], **fields: Any) -> Command:
        now = self.now()
        whole: dict[str, Any] = {
            "agent": AGENT,
            "id": uuid.uuid4().hex,
            "deed": deed,
            "generation": generation,
            "issued_at": now,
            "expires_at": now + 30,
            "body": body,
        }
        return Command(**{**whole, **fields})

    def sealed(self, command: Command, **fields: Any) -> str:
        keys: dict[str, Any] = {"agent": AGENT, "key": self.sealing, "signing": self.signing, **fields}
        return command_seal(command_encode(command), **keys)

    def send(self, command: Command) -> None:
        self.send_raw(self.sealed(command))

    def send_raw(self, sealed: object) -> None:
        message = task_message(COMMAND_TASK, (sealed,), queue=queue_name(AGENT))
        with redis.Redis.from_url(self.redis_url) as client:
            client.lpush(f"agent.{AGENT}:{queue_name(AGENT)}", message)

    def until(self, check: Callable[[], Any], what: str) -> Any:
        """What `check` comes to, as soon as that is anything."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self.condition:
            while not (found := check()):
                if time.monotonic() > deadline:
                    beat = self.heartbeats[-1] if self.heartbeats else None
                    raise AssertionError(f"{what} never came: {self.told()}, {beat}")
                self.condition.wait(0.2)
            return found

    def told(self, kind: str | None = None) -> list[Mapping[str, Any]]:
        return [one.told if kind else {one.kind: one.told} for one in self.reports if kind in (None, one.kind)]

    def acknowledged(self, generation: int) -> Mapping[str, Any]:
        def found() -> Any:
            return next((one for one in self.told("applied") if one["generation"] == generation), None)

        return dict(self.until(found, f"the acknowledgement of generation {generation}"))

    def receipt(self, operation: str) -> Mapping[str, Any]:
        return self.receipts(operation, 1)[0]

    def receipts(self, operation: str, count: int) -> list[Mapping[str, Any]]:
        def found() -> Any:
            those = [one for one in self.told("receipt") if one["operation"] == operation]
            return those if len(those) >= count else None

        return list(self.until(found, f"{count} receipts of {operation}"))

    def refused(self, reason: str) -> Mapping[str, Any]:
        def found() -> Any:
            return next((one for one in self.told("refused") if one["reason"] == reason), None)

        return dict(self.until(found, f"the report of a command {reason}"))

    def seen(self, check: Callable[[Mapping[str, Any]], Any], what: str) -> Mapping[str, Any]:
        """A heartbeat from now on of which that is true."""
        begin = len(self.heartbeats)
        return dict(self.until(lambda: next((one for one in self.heartbeats[begin:] if check(one)), None), what))

    def ready(self, generation: int) -> Mapping[str, Any]:
        def is_ready(beat: Mapping[str, Any]) -> bool:
            applied, engine = beat["applied"], beat["engine"]
            is_there = applied is not None and applied["generation"] == generation
            return is_there and engine["state"] == "ready" and engine["hash"] == applied["hash"]

        return self.seen(is_ready, f"a heartbeat of an engine ready with generation {generation}")

    # What it answers

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any, Any]:
        parts = urlsplit(path)
        with self.condition:
            self.requests.append(f"{method} {parts.path}")
            try:
                if self.is_away:
                    return _error(503, "unavailable")
                return self._answer(parts.path.removeprefix("/agent/v1/"), parts.query, headers, body)
            finally:
                self.condition.notify_all()

    def _answer(self, purpose: str, query: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any, Any]:
        if purpose == "enrol":
            told = json.loads(body)
            good = told["token"] == JOIN_TOKEN and told["kind"] == self.kind
            return (201, {}, self._credentials(self.token)) if good else _error(401, "unknown_token")
        if headers.get("authorization") != f"Bearer {self.token}":
            return _error(401, "unknown_token")
        if self.is_revoked:
            return _error(403, "revoked")
        if purpose == "reports":
            is_packed = headers.get("content-encoding") == "gzip"
            return 200, {}, self._reported(gzip.decompress(body) if is_packed else body)
        if purpose == "credentials":
            return 200, {}, self._credentials(self._rotated() if json.loads(body)["rotate"] else None)
        if purpose == "snapshot":
            return self._snapshot(query.removeprefix("have="))
        pin = self.pins.get(purpose.removeprefix("pins/"))
        return _error(404, "not_found") if pin is None else (200, {}, pin)

    def _rotated(self) -> str:
        self.token = f"lat_{secrets.token_hex(8)}"
        return self.token

    def _snapshot(self, have: str) -> tuple[int, Any, Any]:
        self.pulls += 1
        if self.desired is None:
            return _error(503, "not_planned")
        generation, snapshot = self.desired
        headers = {"x-luminet-generation": str(generation), "x-luminet-snapshot": snapshot.hash}
        if have == snapshot.hash:
            return 304, headers, b""
        return 200, headers | {"content-encoding": "gzip"}, gzip.compress(snapshot_encode(snapshot))

    def _reported(self, body: bytes) -> dict[str, Any]:
        batch = batch_decode(body)
        known = self.spools.setdefault(batch.spool, 0)
        assert batch.first <= known + 1, "a report was lost"
        self.reports += batch.reports[known + 1 - batch.first :]
        self.spools[batch.spool] = max(known, batch.first - 1 + len(batch.reports))
        if batch.heartbeat is not None:
            self.heartbeats.append(batch.heartbeat)
        desired = None if self.desired is None else {"hash": self.desired[1].hash, "generation": self.desired[0]}
        told = {"desired": desired, "cadence_seconds": 0.5, "now": self.now(), "watch": list(self.watch)}
        return {"acknowledged": self.spools[batch.spool], "journal": {}, **told}

    def _credentials(self, token: str | None) -> dict[str, Any]:
        place = urlsplit(self.redis_url)
        login = f"redis://agent.{self.agent}:secret@{place.hostname}:{place.port}/0"
        verifying = base64.b64encode(self.signing.public_key().public_bytes_raw()).decode()
        sealing = base64.b64encode(self.sealing).decode()
        return {
            "agent": self.agent,
            "kind": self.kind,
            "group": "default",
            "token": token,
            "cadence_seconds": 0.5,
            "now": self.now(),
            "key_number": 1,
            "broker": {"url": login, "prefix": f"agent.{self.agent}:", "queue": queue_name(self.agent)},
            "keys": {"verifying": verifying, "sealing": sealing, "identity": self.identity, "check": self.check},
        }


def _error(status: int, code: str) -> tuple[int, Any, Any]:
    return status, {}, {"error": {"code": code, "message": "not here"}}


def login_make(redis_url: str) -> None:
    """The agent's, with no more rights than the control plane gives it."""
    with redis.Redis.from_url(redis_url) as client:
        for script in SCRIPTS:
            client.script_load(script)
        password = f"#{sha256(b'secret').hexdigest()}"
        rules = [*login_rules(f"agent.{AGENT}:", commands_known(client)), "on", password]
        client.execute_command("ACL SETUSER", f"agent.{AGENT}", *rules)


@contextmanager
def control_plane(redis_url: str, **fields: Any) -> Iterator[ControlPlane]:
    plane = ControlPlane(f"http://127.0.0.1:{free_port()}", redis_url, **fields)
    login_make(redis_url)
    with answering(plane):
        yield plane


@contextmanager
def answering(plane: ControlPlane) -> Iterator[None]:
    """At its address, and nothing but that: without a Redis there are no commands, and snapshots are pulled."""

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, told, answer = plane.answer(self.command, self.path, headers, body)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**told, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if status != 304:
                self.wfile.write(content)

        do_GET = do_POST = _serve  # noqa: N815 (http.server's names)

        def log_message(self, format: str, *args: Any) -> None:
            """Not to the test's output."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Whoever was killed meanwhile is no mistake of ours."""

    server = Server(("127.0.0.1", urlsplit(plane.url).port or 0), Door)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(slots=True)
class SidecarProcess:
    process: "subprocess.Popen[bytes]"
    home: Path
    status_port: int
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def sidecar(plane: ControlPlane, home: Path, *arguments: str) -> Iterator[SidecarProcess]:
    """`luminet agent`, as a process. What it has logged is said where a test fails."""
    status_port = free_port()
    command = [sys.executable, "-m", "engine_agent.sidecar.command", "--join", plane.url, "--token", JOIN_TOKEN]
    command += ["--home", str(home), "--status-port", str(status_port), *arguments]
    log = home.with_suffix(".log")
    with log.open("ab") as sink:
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    try:
        yield SidecarProcess(process, home, status_port, log)
    except BaseException:
        print(log.read_text()[-6000:])
        raise
    finally:
        process.kill()
        process.wait()


def is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(os.fspath(path))
        except OSError:
            return False
        return True
