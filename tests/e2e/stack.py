"""`make up` as people run it: a process of its own, with a home and a port of its own, always stopped in the end."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from controlplane.common.health import http_get
from controlplane.stack.config import read_stack_config
from controlplane.stack.leftovers import holder, read_status
from tests.suite.logs import keep_logs
from tests.support.make import without_make
from tests.support.ports import free_engine_port, free_port
from tests.support.waiting import wait_until as wait_until

CHECKOUT = Path(__file__).parents[2]
READY_SECONDS = 180  # of a whole fleet on a machine that has other work; how long a start takes is row W2's
STOP_SECONDS = 10  # in which the smallest stack ends, whatever it is doing
STOPPED_SECONDS = 60  # for a whole fleet on a machine that has other work


@dataclass(slots=True)
class Stack:
    home: Path
    port: int
    process: "subprocess.Popen[str]"
    settings: dict[str, str] = field(default_factory=dict)
    engine_port: int = 8101
    gateway_port: int = 8080
    output: list[str] = field(default_factory=list)
    reader: threading.Thread = field(init=False)

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def gateway(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def demo(self) -> dict[str, Any]:
        demo: dict[str, Any] = json.loads((self.home / "demo.json").read_text())
        return demo

    @property
    def said(self) -> str:
        return "".join(self.output)

    def status(self) -> dict[str, dict[str, Any]]:
        """What `luminet stack status` reads, asked often and so without a process for each time."""
        config = read_stack_config({"LUMINET_HOME": str(self.home)})
        rows = read_status(config.status_file) if holder(config.lock_file) else []
        return {row["name"]: row for row in rows}

    def wait_status(self, name: str, state: str) -> None:
        what = f"{name} {state}"
        wait_until(
            lambda: self.status().get(name, {}).get("state") == state, what, self.process, details=lambda: self.said
        )

    def wait_ready(self) -> None:
        wait_until(lambda: "Luminet is ready" in self.said, "ready", self.process, details=lambda: self.said)

    def close(self) -> None:
        """Let go of the pipe of a process that has ended."""
        self.reader.join(5)
        if self.process.stdout:
            self.process.stdout.close()

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Seconds it took to stop after that signal."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(STOPPED_SECONDS)
        return time.monotonic() - began

    def start_again(self) -> None:
        """From the same home and at the same addresses, once it has ended."""
        self.close()
        again = start(self.home, self.port, **self.settings)
        self.process, self.output, self.reader = again.process, again.output, again.reader
        self.wait_ready()


def environment(home: Path, port: int, **more: str) -> dict[str, str]:
    inherited = without_make(dict(os.environ))
    kept = {name: value for name, value in inherited.items() if not name.startswith(("LUMINET_", "DJANGO_"))}
    own = {"LUMINET_HOME": str(home), "LUMINET_WEB_PORT": str(port)}
    own |= {"LUMINET_INSTALL_ENGINE": "no", "LUMINET_RUN_ENGINE": "no", "LUMINET_DEMO_TRAFFIC": "0"}
    # Our parts talk to each other directly, whatever proxy leads to the world outside.
    own |= {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    return {**kept, **own, "PYTHON": sys.executable, **more}


def start(home: Path, port: int, **more: str) -> Stack:
    process = subprocess.Popen(
        ["make", "--silent", "up"],
        cwd=CHECKOUT,
        env=environment(home, port, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    stack = Stack(home, port, process, settings=more)
    stack.engine_port = int(more.get("LUMINET_ENGINE_PORT", stack.engine_port))
    stack.gateway_port = int(more.get("LUMINET_GATEWAY_PORT", stack.gateway_port))
    stack.reader = threading.Thread(target=_read, args=(stack,), daemon=True)
    stack.reader.start()
    return stack


@contextlib.contextmanager
def running(home: Path, port: int | None = None, **more: str) -> Iterator[Stack]:
    stack = start(home, port or free_port(), **more)
    try:
        stack.wait_ready()
        yield stack
    finally:
        end(stack)


@contextlib.contextmanager
def running_fleet(home: Path, *, ready_seconds: float = READY_SECONDS, **more: str) -> Iterator[Stack]:
    """With its agents and its gateway, and all of them in sync."""
    ports = {"LUMINET_ENGINE_PORT": str(free_engine_port()), "LUMINET_GATEWAY_PORT": str(free_port())}
    with running(home, None, LUMINET_RUN_ENGINE="yes", **ports, **more) as stack:
        wait_serving(stack, seconds=ready_seconds)
        yield stack


def wait_serving(stack: Stack, *, seconds: float = READY_SECONDS) -> None:
    wait_until(
        lambda: is_fleet_well(stack), "a fleet that serves", stack.process, seconds, details=lambda: fleet_told(stack)
    )
    wait_until(lambda: models_served(stack), "a model at the gateway", stack.process)


def is_fleet_well(stack: Stack) -> bool:
    """Whether all of the demo's three members are ready and hold what they are to hold."""
    agents = fleet_agents(stack)
    return len(agents) >= 3 and all(one["state"] == "ready" and one["in_sync"] for one in agents)


def models_served(stack: Stack) -> list[str]:
    """By the gateway, which hears of an engine's model a moment after the engine has told it."""
    found = data_at(f"{stack.gateway}/v1/models", stack.demo["orgs"][0]["api_key"]) or {"data": []}
    return [one["id"] for one in found["data"]]


def fleet_told(stack: Stack) -> str:
    """What a reader of a failed test needs: each member's state, and what the stack and its parts said last."""
    files = sorted((stack.home / "logs").glob("*.log"))
    logs = [f"{log.name}:\n{log.read_text(errors='replace')[-1500:]}" for log in files]
    states = [(one["id"], one["state"], one["in_sync"]) for one in fleet_agents(stack)]
    return "\n".join([str(states), stack.said[-3000:], *logs])


def fleet_agents(stack: Stack) -> list[dict[str, Any]]:
    """Over REST: waiting for a fleet asks again and again, and a command is a process each time."""
    found = data_at(f"{stack.web}/api/v1/fleet/agents", stack.demo["operator"]["token"]) or {"items": []}
    items: list[dict[str, Any]] = found["items"]
    return items


def data_at(url: str, bearer: str | None = None) -> dict[str, Any] | None:
    """The JSON of an answer, or None where there is none."""
    try:
        answer: dict[str, Any] = json.loads(http_get(url, bearer=bearer))
    except (OSError, HTTPException, ValueError):
        return None
    return answer


def end(stack: Stack) -> None:
    """Stop it whatever has become of it, and what it left behind too."""
    if stack.process.poll() is None:
        stack.stop()
    config = read_stack_config({"LUMINET_HOME": str(stack.home)})
    if config.status_file.exists() or holder(config.lock_file):
        luminet("stack", "down", home=stack.home)
    stack.close()


@contextlib.contextmanager
def new_home(*, mode: int = 0o755) -> Iterator[Path]:
    """A home in a folder every user can reach, unless its mode says otherwise: as root, PostgreSQL runs as nobody."""
    folder = Path(tempfile.mkdtemp(prefix="luminet-e2e-"))
    folder.chmod(mode)
    home = folder / "home"
    try:
        yield home
    finally:
        keep_logs(folder)
        shutil.rmtree(read_stack_config({"LUMINET_HOME": str(home)}).private_place, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def luminet(*arguments: str, home: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "controlplane.cli", *arguments]
    env = environment(home, 8000, **more)
    return subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=60, check=False)


def django_shell(home: Path, code: str) -> None:
    """Run Python beside the running stack, as its own processes are set up."""
    settings = json.loads((home / "run" / "environment.json").read_text())
    env = environment(home, 8000, **settings)
    command = [sys.executable, "manage.py", "shell", "-v0", "-c", code]
    subprocess.run(command, cwd=CHECKOUT, env=env, check=True, timeout=60)


def readyz(web: str) -> dict[str, Any]:
    return data_at(f"{web}/readyz") or {}


def _read(stack: Stack) -> None:
    with contextlib.suppress(ValueError):
        for line in stack.process.stdout or ():
            stack.output.append(line)
