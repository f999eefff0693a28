"""The demo's fleet as services: two agents, each a sidecar and an engine, and the gateway. Starts nothing.

The stack does not wait for them: the engines' packages may still be installing. Sidecars and gateway need no more
packages, so they join at once. An engine starts after its sidecar, which writes the secret that lets the engine trust
the gateway.
"""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from controlplane.common.health import data_plane_check, demo_traffic_check, loopback_address
from controlplane.fleet.shipped import DEMO_MODEL, DEMO_MODEL_NAME
from controlplane.settings.env import CHECKOUT
from controlplane.stack.bootstrap import is_installed
from controlplane.stack.child import Service
from controlplane.stack.config import GATEWAY, AgentPlaces, StackConfig, join_token_file
from controlplane.stack.services import luminet
from engine_agent.backends.registry import USUAL, backend_entry

CONTROL_PLANE = ("web", "worker", "beat")
GATEWAY_DRAIN_SECONDS = 1.5


def runs_fleet(config: StackConfig) -> bool:
    """Return whether there are engines to serve, or will be once their packages are installed."""
    return config.engine_port is not None and (config.installs_engine or is_installed("engine"))


def fleet_services(config: StackConfig, *, web: str, engines_after: tuple[str, ...]) -> list[Service]:
    agents = [
        service
        for agent in config.agents
        for service in (sidecar_service(agent, web=web), engine_service(agent, after=engines_after))
    ]
    return [*agents, gateway_service(config, web=web)]


def engine_packages_service(bootstrap: Path) -> Service:
    """Return the job that installs the engines' packages; they are large, so everything else starts meanwhile."""
    return Service(
        name="engine-packages",
        command=("nice", "-n", "10", sys.executable, "-I", str(bootstrap), "engine"),
        needs=CONTROL_PLANE,
        is_job=True,
        is_awaited=False,
        cwd=CHECKOUT,
    )


def sidecar_service(agent: AgentPlaces, *, web: str) -> Service:
    own_options = ("--engine-state", str(agent.state), "--address", loopback_address("127.0.0.1", agent.port))
    status = ("--status-port", str(agent.status_port))
    return Service(
        name=agent.name,
        command=luminet("agent", *_joining(agent.name, agent.home, web), *own_options, *status),
        check=partial(data_plane_check, "sidecar", loopback_address("127.0.0.1", agent.status_port)),
        port=agent.status_port,
        needs=CONTROL_PLANE,
        is_awaited=False,
        cwd=CHECKOUT,
    )


def engine_service(agent: AgentPlaces, *, after: tuple[str, ...]) -> Service:
    """Return an engine with the demo model. It trusts requests signed with the secret that its sidecar wrote."""
    model = ("--model", str(DEMO_MODEL), "--name", DEMO_MODEL_NAME, "--port", str(agent.port))
    fleet = ("--agent-id", agent.name, "--identity-secret-file", str(agent.state / "identity-secret"))
    own_options = (
        () if agent.backend == USUAL else ("--backend", agent.backend, *backend_entry(agent.backend).demo_options)
    )
    return Service(
        name=f"{agent.name}-engine",
        command=luminet("engine", *model, "--state", str(agent.state), *fleet, *own_options),
        check=partial(data_plane_check, "engine", loopback_address("127.0.0.1", agent.port)),
        port=agent.port,
        needs=(agent.name, *after),
        is_awaited=False,
        cwd=CHECKOUT,
    )


def gateway_service(config: StackConfig, *, web: str) -> Service:
    """Return the gateway. It drains before the supervisor kills it, so that clients learn why their answers ended."""
    drain = ("--drain-seconds", str(GATEWAY_DRAIN_SECONDS))
    return Service(
        name="gateway",
        command=luminet("gateway", *_joining(GATEWAY, config.gateway, web), "--port", str(config.gateway_port), *drain),
        check=partial(data_plane_check, "gateway", loopback_address("127.0.0.1", config.gateway_port)),
        port=config.gateway_port,
        needs=CONTROL_PLANE,
        is_awaited=False,
        cwd=CHECKOUT,
    )


def demo_traffic_service(config: StackConfig, *, environment: Mapping[str, str], redis_url: str) -> Service:
    """Return the demo's traffic, which itself waits for the gateway and its engines."""
    return Service(
        name="demo-traffic",
        command=("nice", "-n", "5", *luminet("run", "demo-traffic")),
        check=partial(demo_traffic_check, redis_url),
        env={**environment, "LUMINET_DEMO_GATEWAY": config.gateway_url or ""},
        needs=CONTROL_PLANE,
        is_awaited=False,
        cwd=CHECKOUT,
    )


def _joining(name: str, home: Path, web: str) -> tuple[str, ...]:
    return ("--join", web, "--token-file", str(join_token_file(home)), "--home", str(home), "--name", name)
