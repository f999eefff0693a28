"""The four servers as processes with short deadlines, and what the system knows of their connections."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from engine_agent.process.config import CHECKOUT
from tests.edge.cases import Server
from tests.edge.hasty import BODY_SECONDS, HEAD_SECONDS
from tests.engines.processes import engine, state_folder
from tests.fleet.fleets import Fleet
from tests.gateway.snapshots import KEY, MODEL, gateway_snapshot, route, tenants
from tests.gateway.stand_in import HASTY as HASTY_USER
from tests.gateway.stand_in import stand_in
from tests.integration.test_gateway_process import joined_before
from tests.suite import outliving
from tests.support.ports import free_port
from tests.support.waiting import wait_until

HASTY = "tests.edge.hasty"
BODY = json.dumps({"model": MODEL, "prompt": "Hello", "max_tokens": 1}).encode()
READY_SECONDS = 90


@dataclass(frozen=True, slots=True)
class Running:
    """A server under test."""

    server: Server
    port: int
    pid: int
    read_log: Callable[[], str]
    ok: str  # a path that a GET without credentials gets 200 for
    take: str  # a path that reads a body
    taken: int  # the status of a good body there
    token: str

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def values(self, case: str, *, host: bytes = b"") -> Mapping[bytes, bytes]:
        """What stands for what in a case's bytes. Its name is in every path, so that it is found again."""
        size, mark = len(BODY), f"?case={self.server}.{case}".encode()
        host = host or b"127.0.0.1:%d" % self.port
        smuggled = b"GET /smuggled%b HTTP/1.1\r\nHost: %b\r\n\r\n" % (mark, host)
        return {
            b"<ok>": self.ok.encode() + mark,
            b"<take>": self.take.encode() + mark,
            b"<second>": b"/second" + mark,
            b"<smuggled>": smuggled,
            b"<smuggled-size>": b"%d" % len(smuggled),
            b"<auth>": b"Authorization: Bearer " + self.token.encode(),
            b"<host>": host,
            b"<body>": BODY,
            b"<size>": b"%d" % size,
            b"<hex>": b"%x" % size,
            b"<HEX>": b"%X" % size,
        }

    @property
    def unread(self) -> bytes:
        """A request whose answer is longer than what sockets hold of it."""
        auth = b"Authorization: Bearer " + self.token.encode()
        if self.server == "web":
            return b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n\r\n" % auth
        long = {"max_tokens": 1_500, "ignore_eos": True, "logprobs": 20, "stream": True, "user": HASTY_USER}
        body = json.dumps({"model": MODEL, "prompt": "Hello", **long}).encode()
        head = b"POST %b HTTP/1.1\r\nHost: x\r\n%b\r\nContent-Length: %d\r\n\r\n"
        return head % (self.take.encode(), auth, len(body)) + body

    def client_ports(self) -> set[int]:
        """The far ends of all its connections, as the system knows them."""
        found = psutil.Process(self.pid).net_connections("tcp")
        return {one.raddr.port for one in found if one.laddr.port == self.port and one.raddr}

    def faults(self) -> list[str]:
        """Lines of its log that tell of a mistake of its own."""
        return [line for line in self.read_log().splitlines() if _is_fault(line)]


def _is_fault(line: str) -> bool:
    return bool(re.search(r'Traceback|"traceback"|"level": "(?:error|critical)"', line))


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[int]:
    with log.open("ab") as sink:
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    outliving.name(process.pid)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int, path: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def gateway_running(folder: Path) -> Iterator[Running]:
    """In front of a stand-in, which answers at once."""
    with stand_in() as behind, state_folder() as home:
        home.mkdir()
        joined_before(home, gateway_snapshot(tenants(), route("agent-1", behind.url)))
        port, log = free_port(), folder / "gateway.log"
        options = ("--port", str(port), "--json-logs", "--home", str(home), "--canary-seconds", "0")
        with _process((sys.executable, "-m", HASTY, "engine_agent.gateway.command", *options), log) as pid:
            wait_until(lambda: _answers(port, "/health"))
            yield Running("gateway", port, pid, log.read_text, "/health", "/v1/completions", 200, KEY)


@contextmanager
def engine_running() -> Iterator[Running]:
    with state_folder() as state:
        program = (HASTY, "engine_agent.server.command")
        with engine("--json-logs", "--threads", "1", state=state, program=program) as running:
            yield Running(
                "engine",
                running.port,
                running.process.pid,
                lambda: "\n".join(running.logged),
                "/health",
                "/v1/completions",
                200,
                running.key,
            )


@contextmanager
def sidecar_running(folder: Path) -> Iterator[Running]:
    """With neither an engine nor a control plane: its status is told all the same."""
    with state_folder() as home:
        home.mkdir()
        joined_before(home, None, kind="engine", agent="agent-1")
        port, log = free_port(), folder / "sidecar.log"
        options = (
            "--home",
            str(home),
            "--engine-state",
            str(home / "engine"),
            "--status-port",
            str(port),
            "--json-logs",
        )
        with _process((sys.executable, "-m", HASTY, "engine_agent.sidecar.command", *options), log) as pid:
            wait_until(lambda: _answers(port, "/health"))
            yield Running("sidecar", port, pid, log.read_text, "/health", "/health", 405, "none")


def web_restarted(fleet: Fleet) -> Running:
    """The fleet's own, with short deadlines."""
    web = fleet.parts["web"]
    web.stop()
    seconds = {"LUMINET_WEB_HEAD_SECONDS": f"{HEAD_SECONDS:g}", "LUMINET_WEB_BODY_SECONDS": f"{BODY_SECONDS:g}"}
    web.environment = {**web.environment, **seconds}
    web.command = (sys.executable, "-m", HASTY, "controlplane.cli", "run", "web")
    web.start()
    port = int(fleet.environment["LUMINET_WEB_PORT"])
    return Running("web", port, web.pid, lambda: web.said, "/healthz", "/api/v1/orgs", 422, fleet.tokens["operator"])
