"""A whole fleet as processes: real PostgreSQL, Redis, web, worker and beat on free ports, and simulated agents.

For tests that break parts of it, and for rows that measure it. Every part can be killed, stopped in its tracks and
started anew by itself; what the database and the broker hold can be looked at directly.
"""

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import redis
from psycopg.conninfo import conninfo_to_dict

from controlplane.common.health import (
    NotReady,
    beat_check,
    broker_check,
    loopback_address,
    web_check,
    worker_check,
    worker_hostname,
)
from controlplane.database.roles import OWNER_URL
from controlplane.settings.env import CHECKOUT
from controlplane.stack.config import StackConfig
from controlplane.stack.credentials import credentials_ensure
from controlplane.stack.redis_server import redis_command
from controlplane.stack.services import (
    Addresses,
    application_environment,
    embedded_logins,
    luminet,
    prepare_environment,
    redis_url,
)
from tests.bench.rest import Rest
from tests.database.template import cluster_bring
from tests.servers.embedded import FAST, postgres_running, temporary_home
from tests.suite import outliving
from tests.support.ports import free_port
from tests.support.waiting import WaitTimeout, wait_until

KEEP_UP_SECONDS = 0.5
STOP_SECONDS = 20.0
LAST_CHARACTERS = 3000

JOIN_TOKEN = {"name": "tests", "uses": None, "expires_in_seconds": 86_400}


@dataclass(slots=True)
class Part:
    """One process of the fleet, which may come and go."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    check: Callable[[], object] | None = None  # raises NotReady until it works
    process: "subprocess.Popen[bytes] | None" = None
    is_wanted: bool = False  # started, and neither killed nor stopped by a test since
    tree: Path = CHECKOUT  # whose code it runs

    def start(self, *, is_awaited: bool = True) -> None:
        assert not self.is_running, f"{self.name} runs already"
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.tree,
                env={**environment_for(self.tree), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        outliving.name(self.pid)
        self.is_wanted = True
        if is_awaited:
            self.wait_ready()

    def wait_ready(self) -> None:
        if self.check is not None:
            wait_until(self._is_ready, f"{self.name} to be ready:\n{self.said[-LAST_CHARACTERS:]}")

    def _is_ready(self) -> bool:
        assert self.check is not None
        if not self.is_running:
            raise WaitTimeout(f"{self.name} has ended:\n{self.said[-LAST_CHARACTERS:]}")
        try:
            self.check()
        except NotReady:
            return False
        return True

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """SIGKILL to it and to what it has started: nothing of it gets to say goodbye."""
        assert self.is_running, f"{self.name} does not run"
        self.is_wanted = False
        os.killpg(self.pid, signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def pause(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def stop(self, *, seconds: float = STOP_SECONDS) -> None:
        """Killed when it has not ended within so many seconds."""
        self.is_wanted = False
        if not self.is_running:
            return
        assert self.process is not None
        self.resume()
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()


def environment_for(tree: Path) -> dict[str, str]:
    """What everything inherits that runs a tree's code: nothing of ours, and that this code is found first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LUMINET_", "DJANGO_"))}
    return kept if tree == CHECKOUT else {**kept, "PYTHONPATH": str(tree)}


class Helper:
    """A process with the settings of a fleet's parts and Django loaded, which forks one child for each call."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._environment, self._log = environment, log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def call(self, name: str, *arguments: str) -> str:
        with self._lock:
            if self._process is None:
                self._process = self._started()
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self._process.stdin.flush()
            status, _, result = self._process.stdout.readline().rstrip("\n").partition(" ")
        if status != "result":
            said = self._log.read_text(errors="replace")[-LAST_CHARACTERS:]
            raise RuntimeError(f"{name} failed in the fleet's helper process:\n{said}")
        return result

    def _started(self) -> "subprocess.Popen[str]":
        command = (sys.executable, "-m", "tests.bench.inside", "--serve")
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env={**environment_for(CHECKOUT), **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None


@dataclass(slots=True)
class Fleet:
    config: StackConfig
    environment: dict[str, str]
    parts: dict[str, Part]
    logins: Mapping[str, str] = field(default_factory=dict)  # settings of what makes the database's logins and migrates
    owner: dict[str, str] = field(default_factory=dict)  # of what migrates and restores, once there are two logins
    tokens: dict[str, str] = field(default_factory=dict)  # operator, join
    agents: list[Part] = field(default_factory=list)
    helper: Helper = field(init=False)

    def __post_init__(self) -> None:
        self.helper = Helper(self.environment, self.config.logs / "helper.log")

    @property
    def web(self) -> str:
        return self.environment["LUMINET_BASE_URL"]

    @property
    def database_url(self) -> str:
        """Of the tables' owner."""
        return self.owner.get(OWNER_URL) or self.environment["LUMINET_DATABASE_URL"]

    @contextmanager
    def rest(self) -> Iterator[Rest]:
        """One connection of its own: the server closes idle ones."""
        with Rest(self.web, self.tokens["operator"]) as rest:
            yield rest

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with self.rest() as rest:
            return rest.ask(method, path, body)

    def broker(self) -> "redis.Redis":
        """As the control plane: it may see every key."""
        return redis.Redis.from_url(self.environment["LUMINET_REDIS_URL"])

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: str, *values: Any) -> Any:
        return self.rows(query, *values)[0][0]

    @contextmanager
    def statements_logged(self) -> Iterator[Callable[[], int]]:
        """PostgreSQL writes down every statement meanwhile; gives how many it has been so far."""
        log, skipped = self.config.logs / "postgres.log", re.compile(r"BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET ")
        line = re.compile(r"LOG:  (?:statement|execute [^:]+): (.*)")

        def count() -> int:
            found = (line.match(one) for one in log.read_text(errors="replace").splitlines())
            return sum(1 for one in found if one and not skipped.match(one[1].upper()))

        self._as_superuser("ALTER SYSTEM SET log_statement = 'all'", "SELECT pg_reload_conf()")
        try:
            yield count
        finally:
            self._as_superuser("ALTER SYSTEM RESET log_statement", "SELECT pg_reload_conf()")

    def _as_superuser(self, *statements: str) -> None:
        password = credentials_ensure(self.config.secrets)["postgres_superuser_password"]
        place = conninfo_to_dict(self.environment["LUMINET_DATABASE_URL"])
        login = {**place, "user": "postgres", "password": password}
        with psycopg.connect(**login, autocommit=True) as connection:  # type: ignore[arg-type]
            for statement in statements:
                connection.execute(statement)

    def simulate(self, count: int, *options: str, prefix: str = "sim") -> Part:
        """That many simulated agents in a process of their own, enrolled and on their way."""
        home = self.config.home / f"agents-{prefix}"
        command = luminet("simulate", "--join", self.web, "--agents", str(count))
        part = Part(
            name=f"{prefix} agents",
            command=(*command, "--home", str(home), "--prefix", prefix, "--json-logs", *options),
            environment={"PYTHONUNBUFFERED": "1", "LUMINET_JOIN_TOKEN": self.tokens["join"]},
            log=self.config.logs / f"agents-{prefix}.log",
        )
        self.agents.append(part)
        part.start()
        return part

    def agents_wait(self, count: int) -> None:
        """Until that many agents hold what they are to hold."""
        wait_until(lambda: self.in_sync() >= count, f"{count} agents in sync\n{self.agents_said()}")

    def in_sync(self) -> int:
        return int(
            self.value(
                "SELECT count(*) FROM fleet_agent WHERE revoked_at IS NULL AND desired_hash <> '' "
                "AND applied_hash = desired_hash AND applied_generation = desired_generation"
            )
        )

    def agents_said(self) -> str:
        return "\n".join(part.said[-LAST_CHARACTERS:] for part in self.agents)

    def said(self) -> str:
        return "\n".join(
            f"== {part.name}\n{part.said[-LAST_CHARACTERS:]}" for part in [*self.parts.values(), *self.agents]
        )


@contextmanager
def fleet_running(*, is_durable: bool = False) -> Iterator[Fleet]:
    """Everything up, nobody enrolled. What is measured waits for the disk, as in production; tests need not."""
    with ExitStack() as stack:
        template = migrated_home()
        config = stack.enter_context(temporary_home(copy_of=template.config))
        fleet, is_migrated = fleet_described(config), (config.home / "postgres").exists()
        stack.enter_context(_postgres_of(fleet, options={} if is_durable else FAST))
        stack.callback(all_stop, fleet)
        fleet.parts["redis"].start()
        if not is_migrated:  # a cluster lies outside a home that PostgreSQL's user cannot reach, and is not copied
            _database_make(fleet)
        fleet.owner[OWNER_URL] = fleet.logins[OWNER_URL]
        fleet.tokens["operator"] = template.operator_token if is_migrated else _operator_token(fleet)
        for name in ("web", "worker", "beat"):
            fleet.parts[name].start(is_awaited=False)
        for name in ("web", "worker", "beat"):
            fleet.parts[name].wait_ready()
        fleet.tokens["join"] = fleet.ask("POST", "/fleet/join-tokens", JOIN_TOKEN)["secret"]
        stack.enter_context(_kept_up(fleet))
        yield fleet


@dataclass(frozen=True, slots=True)
class MigratedHome:
    """A home whose database is migrated and has an operator. No process uses it."""

    config: StackConfig
    operator_token: str


@cache
def migrated_home() -> MigratedHome:
    """The template of this process's fleets, removed when the process ends: each fleet starts on a copy of it."""
    stack = ExitStack()
    atexit.register(stack.close)
    config = stack.enter_context(temporary_home())
    cluster_bring(config)
    fleet = fleet_described(config)
    with _postgres_of(fleet, options=FAST):
        fleet.parts["redis"].start()
        try:
            _database_make(fleet)
            return MigratedHome(config, _operator_token(fleet))
        finally:
            fleet.parts["redis"].stop()


def _postgres_of(fleet: Fleet, *, options: Mapping[str, str]) -> AbstractContextManager[object]:
    url = fleet.environment["LUMINET_DATABASE_URL"]
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    return postgres_running(fleet.config, port=port, url=url, options=options)


@contextmanager
def _kept_up(fleet: Fleet) -> Iterator[None]:
    """What ends by itself is started again, as the supervisor does in the product: Celery's worker does so now and then
    when its broker dies in the very moment of an acknowledgement."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(KEEP_UP_SECONDS):
            for part in fleet.parts.values():
                if part.is_wanted and not part.is_running:
                    part.start(is_awaited=False)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def fleet_described(config: StackConfig) -> Fleet:
    """Nothing of it runs yet."""
    credentials = credentials_ensure(config.secrets)
    redis_port, postgres_port, web_port = free_port(), free_port(), free_port()
    addresses = Addresses(
        web=loopback_address("127.0.0.1", web_port),
        **embedded_logins(postgres_port, credentials),
        redis_url=redis_url(redis_port, credentials["redis_password"]),
    )
    environment = application_environment(config, addresses, {})
    environment |= {"LUMINET_WEB_PORT": str(web_port), "LUMINET_LOG_FORMAT": "json"}
    command = redis_command(config, port=redis_port, password=credentials["redis_password"])
    redis_part = Part("redis", command, {}, config.logs / "redis.log", lambda: broker_check(addresses.redis_url))
    checks: dict[str, Callable[[], object]] = {
        "web": lambda: web_check(addresses.web),
        "worker": lambda: worker_check(addresses.redis_url, worker_hostname(), timeout_seconds=0.5),
        "beat": lambda: beat_check(addresses.redis_url),
    }
    parts = {
        name: Part(name, luminet("run", name), environment, config.logs / f"{name}.log", check)
        for name, check in checks.items()
    }
    return Fleet(config, environment, {"redis": redis_part, **parts}, logins=prepare_environment(addresses, {}))


def _database_make(fleet: Fleet) -> None:
    """With two logins, as in production."""
    for part in ("roles", "migrate"):
        finished(fleet, luminet("run", part), more=fleet.logins)


def _operator_token(fleet: Fleet) -> str:
    said = finished(fleet, (sys.executable, "-m", "tests.bench.inside", "tests.fleet.fleets:operator_make"))
    return said.splitlines()[-1].strip('"')


def static_files_collect(fleet: Fleet) -> None:
    """Pages name them, and a web process knows them from its start on."""
    finished(fleet, (sys.executable, "manage.py", "collectstatic", "--no-input"))


def operator_make() -> str:
    """Called inside the fleet's own database: an operator, and the secret of a token of theirs."""
    from tests.database.factories import make_operator
    from tests.web.api import make_operator_token

    return make_operator_token(make_operator())


def inside(fleet: Fleet, name: str, *arguments: str) -> str:
    """Call a function (`package.module:function`) with JSON arguments and the settings of the fleet's own parts.

    Returns its result in JSON.
    """
    return fleet.helper.call(name, *arguments)


def finished(
    fleet: Fleet, command: Sequence[str], *, tree: Path = CHECKOUT, more: Mapping[str, str] = MappingProxyType({})
) -> str:
    """What a command said, of a tree's code with the settings of the fleet's own parts."""
    environment = {**environment_for(tree), **fleet.environment, **more}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command!r} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def all_stop(fleet: Fleet) -> None:
    fleet.helper.close()
    for part in [*fleet.agents, *reversed(fleet.parts.values())]:
        part.stop()
