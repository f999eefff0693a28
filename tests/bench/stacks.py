"""A whole stack for rows to measure, with a home and ports of its own; and single parts beside it."""

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

import psutil

from controlplane.common.health import NotReady, loopback_address, web_check
from controlplane.fleet.shipped import DEMO_MODEL_NAME
from controlplane.stack.config import StackConfig
from controlplane.stack.leftovers import end_leftovers, read_status
from tests.bench.pages import NotAnswered, Pages
from tests.bench.processes import LAST_CHARACTERS, Launched, NotStarted, launched
from tests.servers.embedded import temporary_home
from tests.support.ports import free_port

LUMINET = (sys.executable, "-m", "controlplane.cli")
READY_LINE = "Luminet is ready"


QUESTION = json.dumps(
    {"model": DEMO_MODEL_NAME, "messages": [{"role": "user", "content": "What is json?"}], "max_tokens": 8}
).encode()


@dataclass(frozen=True, slots=True)
class Answered:
    """Seconds from the launch until these were there."""

    overview: float  # signed in
    ready: float  # the stack's own word
    completion: float | None  # None: it runs no engine


@dataclass(slots=True)
class Stack:
    config: StackConfig
    launched: Launched

    @property
    def address(self) -> str:
        return loopback_address(self.config.web_host, self.config.web_port)

    @property
    def operator(self) -> tuple[str, str]:
        """Email and password of the demo operator."""
        found = json.loads(self.config.demo_file.read_text(encoding="utf-8"))["operator"]
        return found["email"], found["password"]

    def wait_ready(self) -> float:
        """Seconds from the launch until the stack called itself ready."""
        return self.launched.wait_for(lambda: READY_LINE in self.launched.log.read_text(errors="replace") or None)[1]

    def wait_answered(self) -> "Answered":
        with ThreadPoolExecutor(2) as beside:
            overview = beside.submit(self.launched.wait_for, self._overview)
            completion = beside.submit(self.launched.wait_for, self._completion) if self.config.engine_port else None
            ready = self.wait_ready()
            return Answered(overview.result()[1], ready, completion.result()[1] if completion else None)

    def _overview(self) -> bytes | None:
        try:
            with Pages(self.address) as pages:
                pages.sign_in(*self.operator)
                return pages.load("/")
        except (NotAnswered, OSError):  # not listening yet, or no demo operator yet
            return None

    def _completion(self) -> bytes | None:
        try:
            demo = json.loads(self.config.demo_file.read_text(encoding="utf-8"))
            headers = {"authorization": f"Bearer {demo['orgs'][0]['api_key']}", "content-type": "application/json"}
            url = f"{self.config.gateway_url}/v1/chat/completions"
            with urlopen(Request(url, QUESTION, headers), timeout=30) as answer:
                found: bytes = answer.read()
                return found
        except (OSError, HTTPException):  # no key yet, or not listening, or no engine that serves
            return None


@contextmanager
def fresh_home() -> Iterator[StackConfig]:
    """A home with nothing in it, on a port of its own; deleted afterwards."""
    with temporary_home() as config:
        quiet = replace(config, installs_engine=False, engine_port=None, runs_demo_traffic=False)
        yield replace(quiet, web_port=free_port())


@contextmanager
def stack_launched(config: StackConfig, command: Sequence[str] = (*LUMINET, "stack", "up")) -> Iterator[Stack]:
    """A stack on its way up."""
    environment = {
        "LUMINET_HOME": str(config.home),
        "LUMINET_WEB_PORT": str(config.web_port),
        "LUMINET_INSTALL_ENGINE": "yes" if config.installs_engine else "no",
        "LUMINET_RUN_ENGINE": "yes" if config.engine_port else "no",
        "LUMINET_ENGINE_PORT": str(config.engine_port or free_port()),
        "LUMINET_GATEWAY_PORT": str(config.gateway_port),
        "LUMINET_DEMO_TRAFFIC": "yes" if config.runs_demo_traffic else "no",
    }
    try:
        with launched(command, environment, log=config.logs / "bench-stack.log") as process:
            yield Stack(config, process)
    finally:
        end_leftovers(config.status_file)


@contextmanager
def stack_running(config: StackConfig) -> Iterator[Stack]:
    with stack_launched(config) as stack:
        stack.wait_ready()
        yield stack


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes. RSS counts pages shared with other processes in full; PSS, where the system tells, its share."""

    rss: float
    pss: float | None


@dataclass(slots=True)
class Web:
    address: str
    start_seconds: float
    process: psutil.Process

    @property
    def memory(self) -> Memory:
        found = self.process.memory_full_info()
        pss = getattr(found, "pss", 0)  # macOS has none, and some kernels leave it empty
        return Memory(found.rss / 1e6, pss / 1e6 if pss else None)


@contextmanager
def web_running(stack: Stack, **settings: str) -> Iterator[Web]:
    """One more web process on the stack's database and Redis, timed until /healthz answered."""
    port = free_port()
    address = loopback_address(stack.config.web_host, port)
    environment = {
        **_web_environment(stack.config),
        "LUMINET_WEB_PORT": str(port),
        "LUMINET_BASE_URL": address,
        "LUMINET_METRICS_DIR": str(stack.config.run / f"metrics-{port}"),
        **settings,
    }
    with launched((*LUMINET, "run", "web"), environment, log=stack.config.logs / f"bench-web-{port}.log") as process:
        _, seconds = process.wait_for(lambda: _is_healthy(address))
        yield Web(address, seconds, psutil.Process(process.process.pid))


def _web_environment(config: StackConfig) -> dict[str, str]:
    """What the stack told its own web process: read from there, so that it cannot differ."""
    (pid,) = [part["pid"] for part in read_status(config.status_file) if part["name"] == "web"]
    environment = psutil.Process(pid).environ()
    return {name: value for name, value in environment.items() if name.startswith("LUMINET_")}


def call_inside(stack: Stack, name: str, *arguments: str | int) -> Any:
    """What a function (`package.module:function`) returns, called with the settings of the stack's own parts."""
    environment = json.loads(stack.config.environment_file.read_text(encoding="utf-8"))
    log = stack.config.logs / "bench-inside.log"
    command = (sys.executable, "-m", "tests.bench.inside", name, *map(json.dumps, arguments))
    with launched(command, environment, log=log) as process:
        status = process.process.wait()
    said = log.read_text(encoding="utf-8", errors="replace")
    if status != 0:
        raise NotStarted(f"{name} ended with status {status}:\n{said[-LAST_CHARACTERS:]}")
    return json.loads(said.splitlines()[-1])


def _is_healthy(address: str) -> bool | None:
    try:
        web_check(address, path="/healthz")
    except NotReady:
        return None
    return True
