"""A fleet whose every part can be of one code or of another, as where an operator upgrades it part by part.

What is asked of it is asked as operators ask: by commands, REST and pages. What these mean does not change from one
version to the next; how a version keeps things inside is its own.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from controlplane.common.health import NotReady, data_plane_check, http_get
from controlplane.stack.services import luminet
from tests.bench.pages import Pages
from tests.fleet.fleets import JOIN_TOKEN, Fleet, Part, all_stop, finished, fleet_described
from tests.servers.embedded import postgres_running, temporary_home
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.upgrading.code import Code, runs
from tests.usage.fleets import engine_of, is_ready, naming

OPERATOR = "operator@luminet.example"
MODEL = "demo"
AGENTS = ("agent-1", "agent-2")
CONTROL_PLANE = ("web", "worker", "beat")
SPOOLED = "luminet_sidecar_spooled_reports "
RUNNING = "luminet_gateway_running_requests{"


@dataclass(slots=True)
class Upgrading:
    """`codes` says which code each part was started with; `ports` of agents are their engine's and their sidecar's."""

    fleet: Fleet
    codes: dict[str, Code] = field(default_factory=dict)
    ports: dict[str, tuple[int, int]] = field(default_factory=dict)
    gateways: dict[str, str] = field(default_factory=dict)  # where each listens
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)  # of an operator who has signed in

    def command(self, code: Code, *arguments: str) -> str:
        """`luminet …`: beside the database, and as an operator at the REST API."""
        asking = {"LUMINET_URL": self.fleet.web, "LUMINET_TOKEN": self.fleet.tokens.get("operator", "none")}
        return self._finished(code, luminet(*arguments), asking)

    def _finished(self, code: Code, command: Sequence[str], more: Mapping[str, str]) -> str:
        environment = {**self.fleet.environment, **more}
        return finished(replace(self.fleet, environment=environment), command, tree=code.tree)

    # The control plane

    def migrate(self, code: Code) -> None:
        """And its static files, which each version has to itself, as images do."""
        self.command(code, "run", "migrate")
        collect = (sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity", "0")
        self._finished(code, collect, self._static(code))

    def control_plane(self, code: Code, *names: str) -> None:
        """Each is stopped, where it runs, and started with that code."""
        for name in names:
            part = self.fleet.parts[name]
            part.stop()
            part.tree, part.environment = code.tree, {**self.fleet.environment, **self._static(code)}
            part.start(is_awaited=False)
            self.codes[name] = code
        for name in names:
            self.fleet.parts[name].wait_ready()
            runs(self.fleet.parts[name], code)

    def _static(self, code: Code) -> dict[str, str]:
        return {"LUMINET_STATIC_ROOT": str(self.fleet.config.home / f"static-{code.name}")}

    # The data plane

    def agent(self, name: str, code: Code) -> None:
        """On the home that its name has, whoever wrote it. Returns when its sidecar answers: an engine that was drained
        stays so over a restart, and then says 503."""
        engine, sidecar = self.ports.setdefault(name, (free_port(), free_port()))
        model = ("--model", str(code.tree / "engine_agent" / "demo" / "model"), "--model-name", MODEL)
        places = ("--port", str(engine), "--status-port", str(sidecar))
        small = ("--pool", "32MiB", "--device", "cpu", "--threads", "1")
        self._start(name, code, luminet("agent", *self._join(name), *model, *places, *small))
        self._answers(name, "sidecar", sidecar)

    def gateway(self, name: str, code: Code) -> str:
        port = free_port()
        self._start(name, code, luminet("gateway", *self._join(name), "--port", str(port)))
        self._answers(name, "gateway", port)
        self.gateways[name] = f"http://127.0.0.1:{port}"
        return self.gateways[name]

    def ready(self, *names: str) -> None:
        with naming(lambda: [self.shown(name) for name in names]):
            wait_until(lambda: all(is_ready(self.fleet, name) for name in names), f"{names} to be ready")
        for name in names:
            runs(self.fleet.parts[name], self.codes[name])

    def _start(self, name: str, code: Code, command: tuple[str, ...]) -> None:
        environment = {"LUMINET_JOIN_TOKEN": self.fleet.tokens["join"], "PYTHONUNBUFFERED": "1"}
        self.fleet.parts[name] = Part(
            name, command, environment, self.fleet.config.logs / f"{name}.log", tree=code.tree
        )
        self.codes[name] = code
        self.fleet.parts[name].start()

    def _join(self, name: str) -> tuple[str, ...]:
        return ("--join", self.fleet.web, "--name", name, "--home", str(self.fleet.config.home / name))

    def _answers(self, name: str, kind: str, port: int) -> None:
        def look() -> bool:
            assert self.fleet.parts[name].is_running, self.fleet.parts[name].said[-3000:]
            with suppress(NotReady):
                data_plane_check(kind, f"http://127.0.0.1:{port}")
                return True
            return False

        with naming(lambda: self.fleet.parts[name].said[-3000:]):
            wait_until(look, f"the {kind} of {name} to answer")

    def dies(self, name: str) -> None:
        """An agent's sidecar and its engine at once, as where a machine loses its power."""
        part = self.fleet.parts[name]
        engine: psutil.Process = engine_of(part)
        part.kill()
        engine.kill()
        wait_until(lambda: not psutil.pid_exists(engine.pid), f"the engine of {name} to be gone")

    def spooled(self, name: str) -> int:
        """What its sidecar has not delivered."""
        said = http_get(f"http://127.0.0.1:{self.ports[name][1]}/metrics").decode()
        (line,) = (line for line in said.splitlines() if line.startswith(SPOOLED))
        return int(float(line.removeprefix(SPOOLED)))

    def running(self, gateway: str) -> float:
        """How many requests are on their way to engines, as the gateway itself counts them now."""
        told = http_get(f"{self.gateways[gateway]}/metrics").decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in told.splitlines() if line.startswith(RUNNING))

    # What is told of them

    def shown(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.fleet.ask("GET", f"/fleet/agents/{name}")
        return found

    def sign_in(self, password: str) -> None:
        with Pages(self.fleet.web) as pages:
            pages.sign_in(OPERATOR, password)
            self.cookies = dict(pages.cookies)

    def is_signed_in(self) -> bool:
        """Whether the session of then still opens pages; raises with what comes instead."""
        with Pages(self.fleet.web, self.cookies) as pages:
            return OPERATOR.encode() in pages.load("/fleet")


@contextmanager
def fleet_of(code: Code) -> Iterator[Upgrading]:
    """Set up by that code: its database, its control plane, two agents and a gateway; and an operator."""
    with ExitStack() as stack:
        config = stack.enter_context(temporary_home())
        fleet = fleet_described(config)
        url = fleet.environment["LUMINET_DATABASE_URL"]
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        stack.enter_context(postgres_running(config, port=port, url=url))
        stack.callback(all_stop, fleet)
        fleet.parts["redis"].start()
        found = Upgrading(fleet)
        found.migrate(code)
        password = json.loads(found.command(code, "create-operator", OPERATOR))["password"]
        fleet.tokens["operator"] = found.command(code, "operator-token", OPERATOR).strip()
        found.control_plane(code, *CONTROL_PLANE)
        fleet.tokens["join"] = fleet.ask("POST", "/fleet/join-tokens", JOIN_TOKEN)["secret"]
        for name in AGENTS:
            found.agent(name, code)
        found.gateway("gateway-1", code)
        found.ready(*AGENTS, "gateway-1")
        found.sign_in(password)
        yield found
