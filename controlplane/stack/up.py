"""`luminet stack up`: start everything in order until Ctrl-C, and print what happens."""

import asyncio
import errno
import json
import shutil
import signal
import time
from collections.abc import Mapping
from http.client import HTTPException

from controlplane.common.health import http_get, loopback_address
from controlplane.settings.env import CHECKOUT, read_environment
from controlplane.stack.bootstrap import is_installed
from controlplane.stack.child import Child, Service
from controlplane.stack.config import NEEDED_BYTES, StackConfig, folders_make, unprivileged_owner
from controlplane.stack.credentials import credentials_ensure
from controlplane.stack.errors import ChildFailed, NoPulse, PortTaken, StackError
from controlplane.stack.fleet_services import (
    demo_traffic_service,
    engine_packages_service,
    fleet_services,
    runs_fleet,
)
from controlplane.stack.leftovers import end_leftovers, sole_stack
from controlplane.stack.ports import free_port, listeners, port_problem
from controlplane.stack.postgres import cluster_prepare
from controlplane.stack.redis_server import redis_command
from controlplane.stack.services import (
    Addresses,
    application_environment,
    application_services,
    embedded_logins,
    owner_environment,
    postgres_service,
    prepare_environment,
    redis_service,
    redis_url,
)
from controlplane.stack.supervisor import Reporter, Supervisor
from controlplane.stack.terminal import Terminal
from controlplane.stack.vllm_ready import vllm_ensure
from controlplane.stack.welcome import welcome
from engine_agent.contracts.files import write_private

PULSE_SECONDS = 30.0
BOOTSTRAP = CHECKOUT / "controlplane" / "stack" / "bootstrap.py"


def stack_up(config: StackConfig, environ: Mapping[str, str], terminal: Terminal) -> None:
    """Run the stack until a signal asks it to stop."""
    _home_check(config)
    folders_make(config)
    with sole_stack(config.lock_file):
        for name in end_leftovers(config.status_file):
            terminal.say("luminet", f"ended {name}, left over from a run that was killed")
        services = describe(config, environ)
        vllm_ensure(config)
        asyncio.run(_run(services, config, terminal))


def describe(config: StackConfig, environ: Mapping[str, str]) -> list[Service]:
    """Return all services of this run. Creates their files on disk; starts nothing."""
    credentials = credentials_ensure(config.secrets)
    _ports_check(config)
    postgres_port = config.postgres_port or free_port()
    redis_port = config.redis_port or free_port()
    logins = (
        {"database_url": config.database_url} if config.database_url else embedded_logins(postgres_port, credentials)
    )
    addresses = Addresses(
        web=loopback_address(config.web_host, config.web_port),
        redis_url=config.redis_url or redis_url(redis_port, credentials["redis_password"]),
        **logins,
    )
    services = []
    if config.database_url is None:
        cluster = cluster_prepare(config, owner=unprivileged_owner(), passwords=credentials)
        services.append(postgres_service(cluster, port=postgres_port, url=addresses.database_url))
    if config.redis_url is None:
        command = redis_command(config, port=redis_port, password=credentials["redis_password"])
        services.append(redis_service(command, port=redis_port, url=addresses.redis_url))
    environment = application_environment(config, addresses, environ)
    read_environment({**environ, **environment})  # better one message here than one from each part
    owner = owner_environment(addresses, environ)
    write_private(config.environment_file, json.dumps({**environment, **owner}, indent=2) + "\n")
    stores = tuple(service.name for service in services)
    owner = prepare_environment(addresses, environ)
    services += application_services(config, addresses, environment, owner=owner, stores=stores)
    return services + _fleet_services(config, addresses, environment)


def _fleet_services(config: StackConfig, addresses: Addresses, environment: Mapping[str, str]) -> list[Service]:
    """Return the services of the fleet, if it has engines, and the job that installs their packages, if needed."""
    installing = [engine_packages_service(BOOTSTRAP)] if config.installs_engine and not is_installed("engine") else []
    if not runs_fleet(config):
        return [*installing]
    after = tuple(service.name for service in installing)
    fleet = fleet_services(config, web=addresses.web, engines_after=after)
    if config.runs_demo_traffic:
        fleet.append(demo_traffic_service(config, environment=environment, redis_url=addresses.redis_url))
    return [*installing, *fleet]


async def _run(services: list[Service], config: StackConfig, terminal: Terminal) -> None:
    started = time.monotonic()

    def announce(child: Child) -> None:
        port = f"  port {child.service.port}" if child.service.port else ""
        word = "done" if child.service.is_job else "ready"
        terminal.say("luminet", f"{child.service.name:<9} {word} after {time.monotonic() - started:4.1f} s{port}")

    reporter = Reporter(say=terminal.say, state=announce, status_file=config.status_file)
    supervisor = Supervisor(services, logs=config.logs, reporter=reporter)
    stop_asked = _listen_for_signals(supervisor)
    try:
        starting = asyncio.create_task(_start(supervisor, config))
        stop_task = asyncio.create_task(stop_asked.wait())
        await asyncio.wait({starting, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            _welcome(config, terminal, seconds=time.monotonic() - started)
            await stop_task
        else:
            starting.cancel()
    except* ChildFailed as failed:
        raise failed.exceptions[0] from None
    finally:
        stopping = time.monotonic()
        terminal.say("luminet", "stopping …")
        await supervisor.stop()
        config.status_file.unlink(missing_ok=True)
        terminal.say("luminet", f"stopped in {time.monotonic() - stopping:.1f} s")


async def _start(supervisor: Supervisor, config: StackConfig) -> None:
    await supervisor.start()
    await _pulse_through(loopback_address(config.web_host, config.web_port))


async def _pulse_through(web: str) -> None:
    """Wait until the web sees a pulse that went from beat through Redis and the worker into PostgreSQL."""
    began = time.monotonic()
    while time.monotonic() - began < PULSE_SECONDS:
        age = (await asyncio.to_thread(_readyz, web)).get("pulse_age_seconds")
        if age is not None and age <= time.monotonic() - began + 1:
            return
        await asyncio.sleep(0.1)
    raise NoPulse(PULSE_SECONDS)


def _readyz(web: str) -> dict[str, float | None]:
    try:
        answer: dict[str, float | None] = json.loads(http_get(f"{web}/readyz"))
    except (OSError, HTTPException, ValueError):
        return {}
    return answer


def _listen_for_signals(supervisor: Supervisor) -> asyncio.Event:
    """Return an event that the first signal sets, for an orderly stop; a second signal kills the children."""
    stop_requested = asyncio.Event()

    def on_signal() -> None:
        if stop_requested.is_set():
            supervisor.kill()
        stop_requested.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    return stop_requested


def _welcome(config: StackConfig, terminal: Terminal, *, seconds: float) -> None:
    demo = json.loads(config.demo_file.read_text(encoding="utf-8"))
    title = terminal.bold(f"Luminet is ready after {seconds:.1f} s: {demo['web']}")
    lines = welcome(demo, demo_file=config.demo_file, logs=config.logs)
    for line in ("", title, *lines, ""):
        terminal.say("luminet", line)


def _ports_check(config: StackConfig) -> None:
    for _, host, port, setting in listeners(config):
        problem = port_problem(host, port)
        if problem and problem.errno == errno.EADDRINUSE:
            raise PortTaken(host=host, port=port, setting=setting)
        if problem:
            why = problem.strerror or problem
            raise StackError(f"Cannot listen on {host} port {port} ({why}): set LUMINET_WEB_HOST or {setting}.")


def _home_check(config: StackConfig) -> None:
    try:
        config.home.mkdir(parents=True, exist_ok=True)
        probe = config.home / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StackError(
            f"Cannot write to {config.home} ({reason}): set LUMINET_HOME to a folder that can be written."
        ) from error
    free = shutil.disk_usage(config.home).free
    if free < NEEDED_BYTES:
        needed = NEEDED_BYTES / 1e6
        raise StackError(
            f"{config.home} has {free / 1e6:.0f} MB free and needs {needed:.0f} MB: free some, or set LUMINET_HOME."
        )
