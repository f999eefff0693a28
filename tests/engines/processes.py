"""Real engine processes for tests, and small clients of their two faces."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

from engine_agent.process.config import CHECKOUT

PROGRAM = ("engine_agent.server.command",)  # a module, and what it takes before an engine's options
DEMO = CHECKOUT / "engine_agent" / "demo" / "model"
READY_SECONDS = 300  # of a machine that is busy with other things; an engine that ends is not waited for


class UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=READY_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._path))


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"]["code"])


@dataclass(slots=True)
class Engine:
    """One that runs, as somebody started it."""

    process: "subprocess.Popen[bytes]"
    state: Path
    said: list[str] = field(default_factory=list)  # on standard output
    logged: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.said[0].split("/v1")[0].rsplit(":", 1)[1])

    @property
    def key(self) -> str:
        return (self.state / "api-key").read_text().strip()

    def admin(self, method: str, path: str, body: object = None, *, raw: bytes | None = None) -> Answer:
        sent = raw if raw is not None else None if body is None else json.dumps(body).encode()
        return asked(UnixConnection(self.state / "admin.sock"), method, path, sent, {})

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        sent = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return asked(HTTPConnection("127.0.0.1", self.port, timeout=READY_SECONDS), method, path, sent, named)

    def complete(self, prompt: object, **fields: object) -> Answer:
        body = {"model": "demo", "prompt": prompt, "max_tokens": 4, "temperature": 0, **fields}
        return self.ask("POST", "/v1/completions", body, authorization=f"Bearer {self.key}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(READY_SECONDS)


def asked(connection: HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
    try:
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        found: HTTPResponse = connection.getresponse()
        return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
    finally:
        connection.close()


@contextmanager
def state_folder() -> Iterator[Path]:
    """A folder with a short name: a socket's path is bounded."""
    folder = Path(tempfile.mkdtemp(prefix="luminet-"))
    try:
        yield folder / "state"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def engine(
    *arguments: str,
    state: Path,
    model: Path = DEMO,
    name: str = "demo",
    program: Sequence[str] = PROGRAM,
    ready_seconds: float = READY_SECONDS,
    folder: Path = CHECKOUT,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Engine]:
    """An engine on a free port that is ready, of the tree in `folder`. It is killed when it has not ended by then."""
    command = [sys.executable, "-m", *program, "--model", str(model), "--name", name]
    command += ["--port", "0", "--pool", "32MiB", "--device", "cpu", "--state", str(state), *arguments]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    started, has_said = Engine(process, state), Event()
    threads = [
        Thread(target=_read, args=(process.stdout, started.said, has_said)),
        Thread(target=_read, args=(process.stderr, started.logged, Event())),
    ]
    for thread in threads:
        thread.start()
    try:
        has_said.wait(ready_seconds)
        if not started.said:
            raise RuntimeError("the engine did not start:\n" + "\n".join(started.logged))
        yield started
    finally:
        process.kill()
        process.wait()
        for thread in threads:
            thread.join()
        process.stdout.close()
        process.stderr.close()


def _read(stream: IO[bytes], lines: list[str], has_said: Event) -> None:
    for line in stream:
        lines.append(line.decode().rstrip("\n"))
        has_said.set()
    has_said.set()  # nothing more will come
